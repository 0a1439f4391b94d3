"""Patch 913: no request makes the CPU compile a helper."""

import torch

from sglang.srt.layers.sampler import multinomial_with_seed
from sglang.srt.layers.vocab_parallel_embedding import get_masked_input_and_mask
from sglang.srt.sampling.penaltylib.repetition_penalty import apply_scaling_penalties
from sglang.srt.speculative.spec_utils import select_top_k_tokens


def test_helpers_of_requests_run_without_dynamo():
    torch._dynamo.utils.counters.clear()
    logits = torch.tensor([[2.0, -2.0]])
    apply_scaling_penalties(logits, torch.tensor([[2.0, 2.0]]))
    assert logits.tolist() == [[1.0, -4.0]]
    logprobs = torch.tensor([[0.0, float("-inf")]])
    drawn = multinomial_with_seed(logprobs, torch.tensor([3]), torch.tensor([5]))
    assert drawn.tolist() == [[0]]
    tokens, mask = get_masked_input_and_mask(torch.tensor([1, 7]), 4, 8, 0, 8, 8)
    assert (tokens.tolist(), mask.tolist()) == ([0, 3], [True, False])
    select_top_k_tokens(
        1,
        torch.rand(2, 2),
        torch.randint(0, 9, (2, 2)),
        torch.randn(2, 3),
        torch.rand(1, 2),
        2,
    )
    assert not torch._dynamo.utils.counters["frames"]
