"""No request makes the CPU compile a helper."""

import os
import unittest

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.layers.sampler import multinomial_with_seed
from sglang.srt.layers.vocab_parallel_embedding import get_masked_input_and_mask
from sglang.srt.sampling.penaltylib.repetition_penalty import apply_scaling_penalties
from sglang.srt.speculative.spec_utils import select_top_k_tokens

register_cpu_ci(est_time=5, suite="base-a-test-cpu")


class TestCpuRunsEagerly(CustomTestCase):
    def setUp(self):
        super().setUp()
        torch._dynamo.utils.counters.clear()

    def tearDown(self):
        self.assertFalse(torch._dynamo.utils.counters["frames"])

    def test_repetition_penalty(self):
        logits = torch.tensor([[2.0, -2.0]])
        apply_scaling_penalties(logits, torch.tensor([[2.0, 2.0]]))
        self.assertEqual(logits.tolist(), [[1.0, -4.0]])

    def test_sampling_with_a_seed(self):
        logprobs = torch.tensor([[0.0, float("-inf")]])
        drawn = multinomial_with_seed(logprobs, torch.tensor([3]), torch.tensor([5]))
        self.assertEqual(drawn.tolist(), [[0]])

    def test_the_part_of_the_vocabulary_that_a_rank_holds(self):
        tokens, mask = get_masked_input_and_mask(torch.tensor([1, 7]), 4, 8, 0, 8, 8)
        self.assertEqual(tokens.tolist(), [0, 3])
        self.assertEqual(mask.tolist(), [True, False])

    def test_a_step_of_a_token_tree(self):
        select_top_k_tokens(
            1,
            torch.rand(2, 2),
            torch.randint(0, 9, (2, 2)),
            torch.randn(2, 3),
            torch.rand(1, 2),
            2,
        )


if __name__ == "__main__":
    unittest.main()
