"""Patch 909: torch_native attention verifies chains and trees and drafts."""

from types import SimpleNamespace

import pytest
import torch

from sglang.srt.layers.attention.torch_native_backend import (
    TorchNativeAttnBackend,
    TorchNativeMultiStepDraftBackend,
)
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.model_executor.forward_batch_info import ForwardMode

NUM_HEADS, HEAD_DIM, NUM_SLOTS, ROW = 2, 4, 64, 16
PREFIX_LENS, NUM_DRAFT_TOKENS = [5, 2], 3


class Pool:
    """Keys and values by slot, and the two methods that a backend calls."""

    def __init__(self):
        torch.manual_seed(0)
        self.keys, self.values = torch.randn(2, NUM_SLOTS, NUM_HEADS, HEAD_DIM)

    def get_key_buffer(self, layer_id):
        return self.keys

    def get_value_buffer(self, layer_id):
        return self.values


LAYER = SimpleNamespace(
    layer_id=0,
    tp_q_head_num=NUM_HEADS,
    tp_k_head_num=NUM_HEADS,
    qk_head_dim=HEAD_DIM,
    v_head_dim=HEAD_DIM,
    scaling=HEAD_DIM**-0.5,
    is_cross_attention=False,
    attn_type=AttentionType.DECODER,
    sliding_window_size=-1,
)


@pytest.fixture
def runner():
    slots = torch.randperm(NUM_SLOTS)[: 2 * ROW].view(2, ROW)
    return SimpleNamespace(
        device="cpu",
        req_to_token_pool=SimpleNamespace(req_to_token=slots.to(torch.int32)),
        token_to_kv_pool=Pool(),
    )


def reference(pool, slots, query):
    """One query [heads, dim] attends to the tokens at ``slots``, in float64."""
    keys, values = pool.keys[slots].double(), pool.values[slots].double()
    scores = torch.einsum("hd,thd->ht", query.double(), keys) * LAYER.scaling
    return torch.einsum("ht,thd->hd", scores.softmax(-1), values).float()


def batch(mode, **fields):
    return SimpleNamespace(
        forward_mode=mode,
        batch_size=2,
        seq_lens=torch.tensor(PREFIX_LENS),
        req_pool_indices=torch.tensor([1, 0]),
        extend_prefix_lens=None,
        extend_seq_lens=None,
        encoder_lens=None,
        out_cache_loc=None,
        **fields,
    )


CHAIN = [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
SIBLINGS = [[1, 0, 0], [1, 1, 0], [1, 0, 1]]


@pytest.mark.parametrize("visible", [CHAIN, SIBLINGS])
def test_verify_attends_to_the_prefix_and_the_ancestors(runner, visible):
    mask = torch.tensor(visible, dtype=torch.bool)
    spec_info = SimpleNamespace(
        draft_token_num=NUM_DRAFT_TOKENS,
        tree_topk=1 if visible is CHAIN else 2,
        custom_mask=mask.repeat(2, 1).flatten(),
    )
    backend = TorchNativeAttnBackend(runner)
    query = torch.randn(2 * NUM_DRAFT_TOKENS, NUM_HEADS, HEAD_DIM)
    forward_batch = batch(ForwardMode.TARGET_VERIFY, spec_info=spec_info)
    out = backend.forward_extend(
        query.flatten(1), None, None, LAYER, forward_batch, save_kv_cache=False
    ).view_as(query)
    for i, (row, prefix) in enumerate(zip([1, 0], PREFIX_LENS, strict=True)):
        slots = runner.req_to_token_pool.req_to_token[row].long()
        for j in range(NUM_DRAFT_TOKENS):
            drafts = slots[prefix : prefix + NUM_DRAFT_TOKENS][mask[j]]
            token = i * NUM_DRAFT_TOKENS + j
            expected = reference(
                runner.token_to_kv_pool,
                torch.cat([slots[:prefix], drafts]),
                query[token],
            )
            torch.testing.assert_close(out[token], expected)


@pytest.mark.parametrize("topk", [1, 2])
def test_each_branch_drafts_on_its_own_tokens(runner, topk):
    num_steps = 3
    drafts = TorchNativeMultiStepDraftBackend(runner, topk, num_steps)
    forward_batch = batch(ForwardMode.DECODE)
    drafts.init_forward_metadata(forward_batch)
    query = torch.randn(2 * topk, NUM_HEADS, HEAD_DIM)
    for step, backend in enumerate(drafts.attn_backends):
        out = backend.forward_decode(
            query.flatten(1), None, None, LAYER, forward_batch, save_kv_cache=False
        ).view_as(query)
        for i, (row, prefix) in enumerate(zip([1, 0], PREFIX_LENS, strict=True)):
            slots = runner.req_to_token_pool.req_to_token[row].long()
            for branch in range(topk):
                first = prefix + branch * num_steps
                own = slots[first : first + step + 1]
                expected = reference(
                    runner.token_to_kv_pool,
                    torch.cat([slots[:prefix], own]),
                    query[i * topk + branch],
                )
                torch.testing.assert_close(out[i * topk + branch], expected)
