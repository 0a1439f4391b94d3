"""The CPU's verify draws from the target's distribution."""

import itertools
import os
import unittest

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.kernels.ops.sampling.renorm_torch import (
    min_p_renorm_probs_torch,
    top_k_top_p_renorm_probs_torch,
)
from sglang.kernels.ops.speculative.verify_sampling import (
    chain_speculative_sampling_triton,
    tree_speculative_sampling_target_only,
)
from sglang.srt.layers.sampler import top_k_top_p_min_p_sampling_from_probs_torch
from sglang.srt.speculative.eagle_utils import _verify_uses_greedy

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

VOCAB_SIZE = 8


def tree(batch_size, topk):
    """A root with ``topk`` children, whose first child has ``topk`` more."""
    num_tokens = 1 + 2 * topk
    index = torch.arange(batch_size * num_tokens).view(batch_size, num_tokens)
    first_child = [1, 1 + topk, *[-1] * (num_tokens - 2)]
    sibling = [-1] * num_tokens
    for first in (1, 1 + topk):
        sibling[first : first + topk - 1] = range(first + 1, first + topk)
    as_rows = [
        torch.tensor(row).repeat(batch_size, 1) for row in (first_child, sibling)
    ]
    return index, *as_rows


def verify_tree(target, candidates, topk):
    """Verify one draft tree in every row, and return the outputs."""
    batch_size, num_tokens = candidates.shape
    index, first_child, sibling = tree(batch_size, topk)
    predicts = torch.zeros(batch_size * num_tokens, dtype=torch.int32)
    accept_index = torch.full((batch_size, 3), -1, dtype=torch.int32)
    accept_token_num = torch.empty(batch_size, dtype=torch.int32)
    tree_speculative_sampling_target_only(
        predicts=predicts,
        accept_index=accept_index,
        accept_token_num=accept_token_num,
        candidates=candidates,
        retrive_index=index,
        retrive_next_token=first_child,
        retrive_next_sibling=sibling,
        uniform_samples=torch.rand(batch_size, num_tokens),
        uniform_samples_for_final_sampling=torch.rand(batch_size),
        target_probs=target,
        draft_probs=torch.zeros_like(target),
    )
    return predicts.view(batch_size, num_tokens), accept_index, accept_token_num


def verify_chain(target, draft, candidates, block_verification):
    """Verify one draft chain in every row, and return the outputs."""
    batch_size, num_tokens = candidates.shape
    predicts = torch.zeros(batch_size * num_tokens, dtype=torch.int32)
    accept_index = torch.full((batch_size, num_tokens), -1, dtype=torch.int32)
    accept_token_num = torch.empty(batch_size, dtype=torch.int32)
    chain_speculative_sampling_triton(
        predicts=predicts,
        accept_index=accept_index,
        accept_token_num=accept_token_num,
        candidates=candidates,
        retrive_index=torch.arange(batch_size * num_tokens).view(batch_size, -1),
        retrive_next_token=None,
        retrive_next_sibling=None,
        uniform_samples=torch.rand(batch_size, num_tokens),
        uniform_samples_for_final_sampling=torch.rand(batch_size),
        target_probs=target,
        draft_probs=draft,
        threshold_single=1.0,
        threshold_acc=1.0,
        deterministic=True,
        block_verification=block_verification,
    )
    return predicts.view(batch_size, num_tokens), accept_index, accept_token_num


def chain_of(draft, num_samples):
    """Chains of a root and a token drawn from each row of ``draft``."""
    drafted = [torch.multinomial(row, num_samples, replacement=True) for row in draft]
    return torch.stack([torch.zeros_like(drafted[0]), *drafted], dim=1)


def chi_square(counts, probs):
    """Pearson's statistic: its mean is the degrees of freedom, its standard deviation
    the root of their double, so that the thresholds here are far beyond chance."""
    expected = probs * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


class TestFilters(CustomTestCase):
    def test_filters_keep_what_the_sampler_without_speculation_keeps(self):
        for (top_k, top_p), min_p in itertools.product(
            ((3, 1.0), (100, 0.6), (4, 0.7), (1, 1.0)), (0.0, 0.2)
        ):
            with self.subTest(top_k=top_k, top_p=top_p, min_p=min_p):
                self.check(
                    torch.full((5,), top_k),
                    torch.full((5,), top_p),
                    torch.full((5,), min_p),
                )

    def check(self, top_ks, top_ps, min_ps):
        torch.manual_seed(0)
        probs = torch.randn(5, VOCAB_SIZE).mul(2).softmax(-1)
        filtered = top_k_top_p_renorm_probs_torch(probs, top_ks, top_ps)
        filtered = min_p_renorm_probs_torch(filtered, min_ps)
        _, weights, token_ids, _ = top_k_top_p_min_p_sampling_from_probs_torch(
            probs.clone(),
            top_ks,
            top_ps,
            min_ps,
            need_min_p_sampling=bool(min_ps.any()),
            sampling_seed=None,
            positions=None,
            return_filtered_probs=True,
        )
        expected = torch.zeros_like(probs).scatter(-1, token_ids.long(), weights)
        expected /= expected.sum(-1, keepdim=True)
        torch.testing.assert_close(filtered, expected)


class TestVerifySamplingOnCpu(CustomTestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)

    def test_only_a_greedy_batch_is_verified_greedily(self):
        for is_all_greedy in (False, True):
            uses_greedy = _verify_uses_greedy(
                is_all_greedy=is_all_greedy,
                is_hip=False,
                is_xpu=False,
                use_rejection_sampling=False,
            )
            self.assertIs(uses_greedy, is_all_greedy)

    def test_tokens_of_a_verified_tree_have_the_targets_distribution(self):
        for topk in (1, 3):
            with self.subTest(topk=topk):
                self.check_tree(topk, num_samples=10_000)

    def check_tree(self, topk, num_samples):
        # Rows of one node are alike, so that every path has the same second token.
        target = torch.randn(2, VOCAB_SIZE).softmax(-1)
        per_node = torch.cat([target[:1], target[1:].expand(2 * topk, -1)])
        first = torch.tensor([5, 2, 7][:topk])
        second = torch.tensor([1, 5, 0][:topk])
        candidates = torch.cat([torch.tensor([0]), first, second])
        predicts, accept_index, accept_token_num = verify_tree(
            per_node.repeat(num_samples, 1, 1), candidates.repeat(num_samples, 1), topk
        )
        counts = predicts[:, 0].bincount(minlength=VOCAB_SIZE)
        self.assertLess(chi_square(counts, target[0]), 3 * VOCAB_SIZE + 20)
        through_first_child = accept_index[:, 1] % candidates.numel() == 1
        through_first_child &= accept_token_num >= 1
        seconds = predicts[through_first_child, 1].bincount(minlength=VOCAB_SIZE)
        self.assertGreater(seconds.sum(), 1_000)
        self.assertLess(chi_square(seconds, target[1]), 3 * VOCAB_SIZE + 20)

    def test_tokens_of_a_verified_chain_have_the_targets_distribution(self):
        num_samples = 10_000
        target = torch.randn(3, VOCAB_SIZE).softmax(-1)
        draft = torch.randn(2, VOCAB_SIZE).softmax(-1)
        candidates = chain_of(draft, num_samples)
        expected = torch.outer(target[0], target[1]).flatten()
        for block_verification in (False, True):
            predicts, _, accept_token_num = verify_chain(
                target.repeat(num_samples, 1, 1),
                draft.repeat(num_samples, 1, 1),
                candidates,
                block_verification,
            )
            # What is not verified is drawn from the target in the next round.
            fresh = torch.multinomial(target[1], num_samples, replacement=True)
            second = torch.where(accept_token_num >= 1, predicts[:, 1], fresh)
            pairs = predicts[:, 0] * VOCAB_SIZE + second
            counts = pairs.bincount(minlength=VOCAB_SIZE**2)
            with self.subTest(block_verification=block_verification):
                self.assertLess(chi_square(counts, expected), 2 * VOCAB_SIZE**2)

    def test_block_verification_accepts_at_least_as_much(self):
        num_samples = 5_000
        target = torch.randn(4, VOCAB_SIZE).softmax(-1).repeat(num_samples, 1, 1)
        draft = torch.randn(3, VOCAB_SIZE).softmax(-1)
        candidates = chain_of(draft, num_samples)
        single, block = (
            verify_chain(target, draft.repeat(num_samples, 1, 1), candidates, b)[2]
            for b in (False, True)
        )
        self.assertGreaterEqual(block.sum(), single.sum())

    def test_a_draft_that_equals_the_target_is_always_accepted(self):
        target = torch.randn(3, VOCAB_SIZE).softmax(-1).repeat(50, 1, 1)
        candidates = torch.randint(0, VOCAB_SIZE, (50, 3))
        for block_verification in (False, True):
            predicts, accept_index, accepted = verify_chain(
                target, target[:, :2].clone(), candidates, block_verification
            )
            in_order = torch.arange(150).view(50, 3)
            self.assertEqual(accepted.tolist(), [2] * 50)
            self.assertEqual(accept_index.tolist(), in_order.tolist())
            self.assertEqual(predicts[:, :2].tolist(), candidates[:, 1:].tolist())

    def test_a_token_without_probability_is_never_committed(self):
        target = torch.zeros(1, 3, VOCAB_SIZE)
        target[..., 2], target[..., 4] = 0.25, 0.75
        candidates = torch.tensor([[0, 3, 4]]).repeat(2_000, 1)
        predicts, _, accepted = verify_tree(
            target.repeat(2_000, 1, 1), candidates, topk=1
        )
        self.assertEqual(accepted.max(), 0)
        self.assertEqual(set(predicts[:, 0].tolist()), {2, 4})


if __name__ == "__main__":
    unittest.main()
