"""One random state and one thread for every test, and a paged cache to attend over."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from hypothesis import HealthCheck, settings

import sgl_kernel_cpu  # noqa: F401  registers torch.ops.sgl_kernel

settings.register_profile(
    "kernels",
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("kernels")


@dataclass
class Paged:
    """A paged cache of some requests, each with slots of its own in no order.

    `attend` works attention out key by key in float64.
    """

    NUM_HEADS: ClassVar = 4
    NUM_KV_HEADS: ClassVar = 2
    HEAD_DIM: ClassVar = 8
    V_HEAD_DIM: ClassVar = 6
    NUM_SLOTS: ClassVar = 300
    SCALE: ClassVar = HEAD_DIM**-0.5

    seq_lens: list[int]

    def __post_init__(self):
        self.keys = torch.randn(self.NUM_SLOTS, self.NUM_KV_HEADS, self.HEAD_DIM)
        self.values = torch.randn(self.NUM_SLOTS, self.NUM_KV_HEADS, self.V_HEAD_DIM)
        num_rows = len(self.seq_lens) + 2
        context = self.NUM_SLOTS // num_rows
        slots = torch.randperm(self.NUM_SLOTS)[: num_rows * context]
        self.req_to_token = slots.view(num_rows, context).to(torch.int32)
        self.rows = torch.randperm(num_rows)[: len(self.seq_lens)]
        self.lens = torch.tensor(self.seq_lens, dtype=torch.int64)

    def slots(self, request, start=0, end=None):
        return self.req_to_token[self.rows[request], start:end].to(torch.int64)

    def poison_the_rest(self):
        """Not-a-number wherever no request has a token."""
        used = torch.zeros(self.NUM_SLOTS, dtype=torch.bool)
        for i, length in enumerate(self.seq_lens):
            used[self.slots(i, 0, length)] = True
        self.keys[~used] = float("nan")
        self.values[~used] = float("nan")

    def attend(self, request, query, positions, cap=0.0, sinks=None):
        """One token's query [num_heads, head_dim] over the keys at some positions."""
        slots = self.slots(request)[positions]
        out = torch.empty(self.NUM_HEADS, self.V_HEAD_DIM, dtype=torch.float64)
        for head in range(self.NUM_HEADS):
            kv_head = head // (self.NUM_HEADS // self.NUM_KV_HEADS)
            keys = self.keys[slots, kv_head].double()
            logits = keys @ query[head].double() * self.SCALE
            if cap:
                logits = cap * (logits / cap).tanh()
            weights = logits.exp()
            total = weights.sum() + (0 if sinks is None else sinks[head].double().exp())
            out[head] = weights @ self.values[slots, kv_head].double() / total
        return out.float()


@pytest.fixture
def paged():
    """The class of small paged caches."""
    return Paged


@pytest.fixture(autouse=True)
def _reproducible():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)
