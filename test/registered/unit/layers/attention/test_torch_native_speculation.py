"""torch_native attention verifies chains and trees, and drafts."""

import unittest
from types import FunctionType, SimpleNamespace

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

import sgl_kernel

from sglang.srt.layers.attention.torch_native_backend import (
    TorchNativeAttnBackend,
    TorchNativeMultiStepDraftBackend,
)
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.model_executor.forward_batch_info import ForwardMode

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

NUM_HEADS, HEAD_DIM, NUM_SLOTS, ROW = 2, 4, 64, 16
PREFIX_LENS, NUM_DRAFT_TOKENS = [5, 2], 3
CHAIN = [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
SIBLINGS = [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
HAS_CPU_KERNELS = isinstance(
    getattr(sgl_kernel, "build_draft_decode_metadata_cpu", None), FunctionType
)


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


class TestTorchNativeSpeculation(CustomTestCase):
    def setUp(self):
        super().setUp()
        self.pool = Pool()
        rows = torch.randperm(NUM_SLOTS)[: 2 * ROW].view(2, ROW)
        self.slots = rows.to(torch.int32)
        self.runner = SimpleNamespace(
            device="cpu",
            req_to_token_pool=SimpleNamespace(req_to_token=self.slots),
            token_to_kv_pool=self.pool,
        )

    def test_verify_attends_to_the_prefix_and_the_ancestors(self):
        for topk, visible in ((1, CHAIN), (2, SIBLINGS)):
            with self.subTest(visible=visible):
                self.check_verify(topk, torch.tensor(visible, dtype=torch.bool))

    def check_verify(self, topk, mask):
        spec_info = SimpleNamespace(
            draft_token_num=NUM_DRAFT_TOKENS,
            tree_topk=topk,
            custom_mask=mask.repeat(2, 1).flatten(),
        )
        query = torch.randn(2 * NUM_DRAFT_TOKENS, NUM_HEADS, HEAD_DIM)
        out = TorchNativeAttnBackend(self.runner).forward_extend(
            query.flatten(1),
            None,
            None,
            LAYER,
            batch(ForwardMode.TARGET_VERIFY, spec_info=spec_info),
            save_kv_cache=False,
        )
        out = out.view_as(query)
        for i, (row, prefix) in enumerate(zip([1, 0], PREFIX_LENS)):
            slots = self.slots[row].long()
            for j in range(NUM_DRAFT_TOKENS):
                drafts = slots[prefix : prefix + NUM_DRAFT_TOKENS][mask[j]]
                token = i * NUM_DRAFT_TOKENS + j
                seen = torch.cat([slots[:prefix], drafts])
                expected = reference(self.pool, seen, query[token])
                torch.testing.assert_close(out[token], expected)

    @unittest.skipUnless(HAS_CPU_KERNELS, "needs a CPU build of sgl_kernel")
    def test_each_branch_drafts_on_its_own_tokens(self):
        for topk in (1, 2):
            with self.subTest(topk=topk):
                self.check_drafts(topk, num_steps=3)

    def check_drafts(self, topk, num_steps):
        drafts = TorchNativeMultiStepDraftBackend(self.runner, topk, num_steps)
        forward_batch = batch(ForwardMode.DECODE)
        drafts.init_forward_metadata(forward_batch)
        query = torch.randn(2 * topk, NUM_HEADS, HEAD_DIM)
        for step, backend in enumerate(drafts.attn_backends):
            out = backend.forward_decode(
                query.flatten(1), None, None, LAYER, forward_batch, save_kv_cache=False
            )
            out = out.view_as(query)
            for i, (row, prefix) in enumerate(zip([1, 0], PREFIX_LENS)):
                slots = self.slots[row].long()
                for branch in range(topk):
                    first = prefix + branch * num_steps
                    own = slots[first : first + step + 1]
                    seen = torch.cat([slots[:prefix], own])
                    token = i * topk + branch
                    expected = reference(self.pool, seen, query[token])
                    torch.testing.assert_close(out[token], expected)


if __name__ == "__main__":
    unittest.main()
