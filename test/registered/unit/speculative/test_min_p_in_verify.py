"""A verify step honours min_p, as sampling without speculation does."""

import os
import unittest
from types import SimpleNamespace
from unittest.mock import patch

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, enter_scope, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt import runtime_context
from sglang.srt.speculative import eagle_utils

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

BATCH_SIZE, NUM_DRAFT_TOKENS, VOCAB_SIZE = 500, 2, 4
PROBS = torch.tensor([0.5, 0.3, 0.15, 0.05])
SPEC = SimpleNamespace(
    speculative_use_rejection_sampling=False,
    speculative_accept_threshold_single=1.0,
    speculative_accept_threshold_acc=1.0,
)


def sampled(min_p):
    """The first token of each request of a batch, after a draft that is refused."""
    rows = torch.arange(BATCH_SIZE * NUM_DRAFT_TOKENS).view(BATCH_SIZE, -1)
    chain = torch.tensor([[1, -1]]).repeat(BATCH_SIZE, 1)
    sampling_info = SimpleNamespace(
        is_all_greedy=False,
        temperatures=torch.ones(BATCH_SIZE, 1),
        top_ks=torch.full((BATCH_SIZE,), VOCAB_SIZE),
        top_ps=torch.ones(BATCH_SIZE),
        min_ps=torch.full((BATCH_SIZE,), min_p),
        need_top_k_sampling=False,
        need_top_p_sampling=False,
        need_min_p_sampling=min_p > 0,
        sampling_seed=None,
        logit_bias=None,
        draft_path_penalties=None,
        acc_additive_penalties=None,
        acc_scaling_penalties=None,
        has_watermark_candidates=False,
    )
    verify_input = SimpleNamespace(
        draft_token=torch.full((BATCH_SIZE * NUM_DRAFT_TOKENS,), 3),
        draft_token_num=NUM_DRAFT_TOKENS,
        max_tree_depth=NUM_DRAFT_TOKENS,
        tree_topk=1,
        retrieve_index=rows,
        retrieve_next_token=chain,
        retrieve_next_sibling=torch.full_like(chain, -1),
    )
    batch = SimpleNamespace(
        device="cpu",
        forward_mode=SimpleNamespace(is_idle=lambda: False),
        seq_lens=torch.ones(BATCH_SIZE, dtype=torch.long),
        sampling_info=sampling_info,
        return_logprob=False,
    )
    logits = PROBS.log().repeat(BATCH_SIZE * NUM_DRAFT_TOKENS, 1)
    predict, _, _ = eagle_utils.eagle_sample(
        verify_input, batch, SimpleNamespace(next_token_logits=logits)
    )
    return predict.view(BATCH_SIZE, NUM_DRAFT_TOKENS)[:, 0]


class TestMinPInVerify(CustomTestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        group = SimpleNamespace(world_size=1)
        parallel = SimpleNamespace(tp_group=group, attn_tp_group=group)
        enter_scope(self, patch.object(eagle_utils, "get_spec", lambda: SPEC))
        enter_scope(
            self, patch.object(runtime_context, "get_parallel", lambda: parallel)
        )

    def test_tokens_below_min_p_are_never_committed(self):
        self.assertEqual(set(sampled(0.0).tolist()), {0, 1, 2, 3})
        self.assertEqual(set(sampled(0.4).tolist()), {0, 1})


if __name__ == "__main__":
    unittest.main()
