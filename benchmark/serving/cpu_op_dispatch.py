"""What do schemas cost the CPU engine? One decode step, dispatched and called directly.

The step is that of a small dense Qwen3.5 on random weights: every operator that SGLang
calls, with SGLang's own Python left out, so that the share of the dispatcher is the
largest that it can be. Both forms run alternately in one process on the same inputs.

"ms" columns are the fastest round's, "added_us" their difference, and the ratio is over
pairs of neighbouring rounds: its median and the range of its middle eight tenths. On a
busy machine the ratio is noise and the fastest rounds are what to read.

    python benchmark/serving/cpu_op_dispatch.py --batch-sizes 1 4 8
"""

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F

from sgl_kernel_cpu import (
    activation,
    cache,
    causal_conv1d,
    decode_attention,
    gated_delta_net_inputs,
    gated_delta_net_update,
    norm,
    rotary,
)

OPERATORS = {
    activation: ("silu_and_mul_cpu", "fused_sigmoid_mul_cpu"),
    cache: ("store_cache_cpu",),
    causal_conv1d: ("causal_conv1d_update_cpu",),
    decode_attention: ("decode_attention_cpu",),
    gated_delta_net_inputs: ("fused_qkvzba_split_reshape_cat_contiguous_cpu",),
    gated_delta_net_update: ("fused_sigmoid_gating_delta_rule_update_cpu",),
    norm: (
        "gemma_rmsnorm_cpu",
        "gemma_fused_add_rmsnorm_cpu",
        "fused_rmsnorm_gated_cpu",
        "fused_qk_gemma_rmsnorm_with_gate_cpu",
    ),
    rotary: ("multimodal_rotary_embedding_cpu",),
}


@dataclass(frozen=True)
class Shape:
    """Sizes of the model, by default those of the checkpoint under test/models."""

    hidden_size: int = 192
    intermediate_size: int = 512
    vocab_size: int = 1024
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    key_heads: int = 2
    value_heads: int = 4
    linear_dim: int = 64


class Step:
    """One decode step of a batch, through whatever object `ops` is."""

    def __init__(self, shape: Shape, batch: int, context: int) -> None:
        s = self.shape = shape
        self.batch = batch
        self.qkv_dim = (2 * s.key_heads + s.value_heads) * s.linear_dim
        z_dim = s.value_heads * s.linear_dim
        attention_dim = s.num_heads * s.head_dim
        self.weights = {
            name: torch.randn(shape) * 0.02
            for name, shape in {
                "qkvz": (self.qkv_dim + z_dim, s.hidden_size),
                "ba": (2 * s.value_heads, s.hidden_size),
                "conv": (self.qkv_dim, 4),
                "gdn_out": (s.hidden_size, z_dim),
                "qkv": (
                    2 * attention_dim + 2 * s.num_kv_heads * s.head_dim,
                    s.hidden_size,
                ),
                "attention_out": (s.hidden_size, attention_dim),
                "gate_up": (2 * s.intermediate_size, s.hidden_size),
                "down": (s.hidden_size, s.intermediate_size),
                "lm_head": (s.vocab_size, s.hidden_size),
                "norm": (s.hidden_size,),
                "head_norm": (s.head_dim,),
                "gated_norm": (s.linear_dim,),
                "gate": (s.value_heads,),
            }.items()
        }
        slots = batch * context + 1
        self.k_cache = torch.randn(slots, s.num_kv_heads, s.head_dim)
        self.v_cache = torch.randn_like(self.k_cache)
        self.req_to_token = torch.arange(1, slots, dtype=torch.int32).view(batch, -1)
        self.requests = torch.arange(batch)
        self.seq_lens = torch.full((batch,), context)
        self.loc = self.req_to_token[:, -1].to(torch.int64)
        self.positions = (self.seq_lens - 1).repeat(3, 1)
        self.cos_sin = torch.randn(context, 16)
        self.conv_states = torch.randn(batch + 1, 3, self.qkv_dim).transpose(1, 2)
        self.states = torch.randn(batch + 1, s.value_heads, s.linear_dim, s.linear_dim)
        self.slots = torch.arange(1, batch + 1, dtype=torch.int32)
        self.cu_seqlens = torch.arange(batch + 1, dtype=torch.int32)

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.weights[name])

    def linear_attention(self, ops: Any, hidden: torch.Tensor) -> torch.Tensor:
        s, w = self.shape, self.weights
        qkv, z, b, a = ops.fused_qkvzba_split_reshape_cat_contiguous_cpu(
            self.linear(hidden, "qkvz"),
            self.linear(hidden, "ba"),
            s.key_heads,
            s.value_heads,
            s.linear_dim,
            s.linear_dim,
        )
        qkv = ops.causal_conv1d_update_cpu(
            qkv, self.conv_states, w["conv"], None, True, None, self.slots
        )
        key_dim = s.key_heads * s.linear_dim
        q, k, v = qkv.split((key_dim, key_dim, self.qkv_dim - 2 * key_dim), dim=-1)
        out = ops.fused_sigmoid_gating_delta_rule_update_cpu(
            A_log=w["gate"],
            dt_bias=w["gate"],
            q=q.view(1, self.batch, s.key_heads, s.linear_dim),
            k=k.view(1, self.batch, s.key_heads, s.linear_dim),
            v=v.view(1, self.batch, s.value_heads, s.linear_dim),
            a=a,
            b=b,
            initial_state_source=self.states,
            initial_state_indices=self.slots,
            cu_seqlens=self.cu_seqlens,
            use_qk_l2norm_in_kernel=True,
            softplus_beta=1.0,
            softplus_threshold=20.0,
        )
        normed = ops.fused_rmsnorm_gated_cpu(
            out.reshape(-1, s.linear_dim),
            w["gated_norm"],
            z.reshape(-1, s.linear_dim),
            1e-6,
        )
        return self.linear(normed.view(self.batch, -1), "gdn_out")

    def full_attention(self, ops: Any, hidden: torch.Tensor) -> torch.Tensor:
        s, w = self.shape, self.weights
        kv_dim = s.num_kv_heads * s.head_dim
        qkv = self.linear(hidden, "qkv")
        q_gate, k, v = qkv.split((qkv.shape[1] - 2 * kv_dim, kv_dim, kv_dim), dim=-1)
        query, key, gate = ops.fused_qk_gemma_rmsnorm_with_gate_cpu(
            q_gate, k, w["head_norm"], w["head_norm"], 1e-6, s.head_dim, s.num_heads
        )
        query, key = query.view(self.batch, -1), key.view(self.batch, -1)
        ops.multimodal_rotary_embedding_cpu(
            self.positions, query, key, s.head_dim, self.cos_sin, [4, 2, 2], True, True
        )
        out = torch.empty_like(query)
        ops.decode_attention_cpu(
            query.view(self.batch, -1, s.head_dim),
            self.k_cache,
            self.v_cache,
            1.0,
            1.0,
            out.view(self.batch, -1, s.head_dim),
            key.view(self.batch, -1, s.head_dim),
            v.view(self.batch, -1, s.head_dim),
            self.loc,
            query,
            self.req_to_token,
            self.requests,
            self.seq_lens,
            s.head_dim**-0.5,
            0.0,
            False,
            0,
            None,
            None,
        )
        ops.fused_sigmoid_mul_cpu(out, gate.view(self.batch, -1))
        return self.linear(out, "attention_out")

    def run(self, ops: Any, hidden: torch.Tensor) -> torch.Tensor:
        norm_weight = self.weights["norm"]
        residual = hidden.clone()
        hidden = ops.gemma_rmsnorm_cpu(hidden, norm_weight, 1e-6)
        for layer in range(self.shape.num_layers):
            if layer:
                ops.gemma_fused_add_rmsnorm_cpu(hidden, residual, norm_weight, 1e-6)
            is_full = layer % 4 == 3
            mix = self.full_attention if is_full else self.linear_attention
            hidden = mix(ops, hidden)
            ops.gemma_fused_add_rmsnorm_cpu(hidden, residual, norm_weight, 1e-6)
            gate_up = self.linear(hidden, "gate_up")
            hidden = self.linear(ops.silu_and_mul_cpu(gate_up), "down")
        ops.gemma_fused_add_rmsnorm_cpu(hidden, residual, norm_weight, 1e-6)
        return self.linear(hidden, "lm_head")


def direct_functions() -> SimpleNamespace:
    """The same operators as plain functions."""
    return SimpleNamespace(
        **{
            name: getattr(module, name)
            for module, names in OPERATORS.items()
            for name in names
        }
    )


class Counting:
    """Forwards to `ops` and counts the calls."""

    def __init__(self, ops: Any) -> None:
        self.ops, self.calls = ops, 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        self.calls += 1
        return getattr(self.ops, name)


def measure(step: Step, steps: int, rounds: int) -> tuple[list[float], list[float]]:
    """CPU milliseconds of a step in each round, dispatched and direct.

    CPU time, which on one thread is what a step takes on an idle machine, because wall
    time would count whatever else runs here.
    """
    hidden = torch.randn(step.batch, step.shape.hidden_size)
    forms = (torch.ops.sgl_kernel, direct_functions())
    times: tuple[list[float], list[float]] = ([], [])
    for current in range(rounds + 1):
        # Alternate which form goes first; the first round only warms up.
        for form in (0, 1) if current % 2 else (1, 0):
            start = time.process_time()
            for _ in range(steps):
                step.run(forms[form], hidden)
            if current:
                times[form].append((time.process_time() - start) / steps * 1e3)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--context", type=int, default=128, help="tokens per request")
    parser.add_argument("--steps", type=int, default=5, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--csv", type=Path, help="also write the table here")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)

    header = (
        "batch_size",
        "calls",
        "dispatched_ms",
        "direct_ms",
        "added_us",
        "ratio",
        "ratio_p10",
        "ratio_p90",
    )
    rows = []
    for batch in arguments.batch_sizes:
        step = Step(Shape(), batch, arguments.context)
        with torch.inference_mode():
            counting = Counting(torch.ops.sgl_kernel)
            step.run(counting, torch.randn(batch, step.shape.hidden_size))
            dispatched, direct = measure(step, arguments.steps, arguments.rounds)
        ratios = [a / b for a, b in zip(dispatched, direct, strict=True)]
        fastest = min(dispatched), min(direct)
        deciles = statistics.quantiles(ratios, n=10)
        rows.append(
            (
                batch,
                counting.calls,
                *(f"{ms:.3f}" for ms in fastest),
                f"{(fastest[0] - fastest[1]) * 1e3:.0f}",
                *(
                    f"{ratio:.3f}"
                    for ratio in (statistics.median(ratios), deciles[0], deciles[-1])
                ),
            )
        )
    print(f"torch {torch.__version__}, {arguments.threads} thread(s), float32")
    for row in (header, *rows):
        print(*(f"{cell!s:>13}" for cell in row))
    if arguments.csv:
        with arguments.csv.open("w", newline="") as file:
            csv.writer(file).writerows((header, *rows))


if __name__ == "__main__":
    main()
