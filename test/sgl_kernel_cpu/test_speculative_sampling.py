"""Verified tokens follow the target's distribution, by chi-square over seeded runs."""

import pytest
import torch
from scipy import stats

from sgl_kernel_cpu import (
    chain_speculative_sampling,
    tree_speculative_sampling_target_only,
)

VOCAB = 5
RUNS = 20_000
# The right distribution fails for one seed in ten thousand; the seed is fixed.
SIGNIFICANCE = 1e-4


def outputs(batch, num_nodes, max_depth):
    return {
        "predicts": torch.full((batch * num_nodes,), -7, dtype=torch.int32),
        "accept_index": torch.full((batch, max_depth), -1, dtype=torch.int32),
        "accept_token_num": torch.full((batch,), -7, dtype=torch.int32),
    }


def emitted(results, b):
    """The tokens that request b commits: accepted drafts and the final token."""
    count = results["accept_token_num"][b].item() + 1
    rows = results["accept_index"][b, :count]
    return results["predicts"][rows].tolist()


def follows(counts, probabilities):
    """Chi-square test that counts are drawn from probabilities."""
    expected = probabilities / probabilities.sum() * counts.sum()
    assert counts[probabilities == 0].sum() == 0
    possible = expected > 0
    test = stats.chisquare(counts[possible].numpy(), expected[possible].numpy())
    assert test.pvalue > SIGNIFICANCE, (counts, expected)


# Node 1 and 2 hang from the root, 3 and 4 from node 1, 5 from node 2.
CHILD = [1, 3, 5, -1, -1, -1]
SIBLING = [-1, 2, -1, 4, -1, -1]
CANDIDATES = [0, 2, 4, 1, 3, 2]


def run_tree(target, coins, final_coins, **thresholds):
    batch, num_nodes = coins.shape
    results = outputs(batch, num_nodes, 3)
    tree_speculative_sampling_target_only(
        **results,
        candidates=torch.tensor([CANDIDATES]).repeat(batch, 1),
        retrive_index=torch.arange(batch * num_nodes).view(batch, num_nodes),
        retrive_next_token=torch.tensor([CHILD]).repeat(batch, 1),
        retrive_next_sibling=torch.tensor([SIBLING]).repeat(batch, 1),
        uniform_samples=coins,
        uniform_samples_for_final_sampling=final_coins,
        target_probs=target,
        draft_probs=torch.zeros_like(target),
        deterministic=True,
        **thresholds,
    )
    return results


def random_target(num_nodes):
    return (torch.randn(num_nodes, VOCAB) * 1.5).softmax(-1)


def test_a_tree_gives_the_target_distribution_of_two_tokens():
    """The second token depends on the first through the node that it leads to."""
    target = random_target(6)
    target[0, 1] = 0  # a token that must never appear
    target[0] /= target[0].sum()
    results = run_tree(
        target.expand(RUNS, -1, -1).contiguous(),
        torch.rand(RUNS, 6),
        torch.rand(RUNS),
    )
    first = torch.zeros(VOCAB)
    second = {1: torch.zeros(VOCAB), 2: torch.zeros(VOCAB)}
    node_of = {2: 1, 4: 2}
    for b in range(RUNS):
        tokens = emitted(results, b)
        first[tokens[0]] += 1
        if tokens[0] in node_of:
            second[node_of[tokens[0]]][tokens[1]] += 1
        else:
            assert len(tokens) == 1
    follows(first, target[0].double())
    for node, counts in second.items():
        follows(counts, target[node].double())


def test_coins_decide_which_child_is_taken():
    target = torch.full((1, 6, VOCAB), 1 / VOCAB)
    taken = []
    for coin in (0.1, 0.3, 0.7):
        coins = torch.full((1, 6), 0.99)
        coins[0, 0] = coin
        results = run_tree(target.clone(), coins, torch.tensor([0.0]))
        taken.append(results["accept_index"][0].tolist())
    assert taken == [[0, 1, -1], [0, 2, -1], [0, -1, -1]]


def test_equal_coins_give_equal_tokens():
    target = random_target(6).expand(4, -1, -1).contiguous()
    coins, final = torch.rand(4, 6), torch.rand(4)
    first = run_tree(target.clone(), coins, final)
    again = run_tree(target.clone(), coins, final)
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name])


def test_a_rejected_child_is_not_the_final_token():
    target = torch.zeros(1, 6, VOCAB)
    target[0, 0] = torch.tensor([0, 0, 0.5, 0, 0.5])
    coins = torch.full((1, 6), 0.9)  # neither 0.5 of node 1 nor ... passes alone
    coins[0, 0] = 1 - 2**-24
    target[0, 0, 4] = 0.4
    target[0, 0, 0] = 0.1
    results = run_tree(target, coins, torch.tensor([0.0]))
    assert results["accept_token_num"].tolist() == [0]
    assert emitted(results, 0) == [0]


def test_low_thresholds_accept_more():
    target = torch.full((1, 6, VOCAB), 1 / VOCAB)
    coins = torch.full((1, 6), 0.99)
    strict = run_tree(target.clone(), coins, torch.tensor([0.0]))
    single = run_tree(target.clone(), coins, torch.tensor([0.0]), threshold_single=0.2)
    summed = run_tree(target.clone(), coins, torch.tensor([0.0]), threshold_acc=0.2)
    counts = [r["accept_token_num"].item() for r in (strict, single, summed)]
    assert counts == [0, 2, 2]


def test_a_token_without_probability_is_not_accepted_at_any_threshold():
    target = torch.zeros(1, 6, VOCAB)
    target[..., 0] = 1
    results = run_tree(
        target, torch.zeros(1, 6), torch.tensor([0.5]), threshold_single=0.0
    )
    assert emitted(results, 0) == [0]


def run_chain(target, draft, candidates, coins, final_coins, block):
    batch, num_nodes = candidates.shape
    results = outputs(batch, num_nodes, num_nodes)
    chain_speculative_sampling(
        **results,
        candidates=candidates,
        retrive_index=torch.arange(batch * num_nodes).view(batch, num_nodes),
        retrive_next_token=torch.empty(0),
        retrive_next_sibling=torch.empty(0),
        uniform_samples=coins,
        uniform_samples_for_final_sampling=final_coins,
        target_probs=target,
        draft_probs=draft,
        block_verification=block,
    )
    return results


@pytest.mark.parametrize("block", [False, True])
def test_a_drawn_chain_gives_the_target_distribution_of_two_tokens(block):
    """Both models are Markov chains, so that every prefix has a known distribution."""
    target_of = (torch.randn(VOCAB, VOCAB) * 1.5).softmax(-1)
    draft_of = (torch.randn(VOCAB, VOCAB) * 1.5).softmax(-1)
    tokens = [torch.zeros(RUNS, dtype=torch.int64)]
    for _ in range(2):
        tokens.append(torch.multinomial(draft_of[tokens[-1]], 1).squeeze(-1))
    candidates = torch.stack(tokens, dim=1)
    results = run_chain(
        target_of[candidates],
        draft_of[candidates[:, :2]],
        candidates,
        torch.rand(RUNS, 3),
        torch.rand(RUNS),
        block,
    )
    first, second = torch.zeros(VOCAB), torch.zeros(VOCAB, VOCAB)
    for b in range(RUNS):
        out = emitted(results, b)
        first[out[0]] += 1
        if len(out) == 1:  # the next step would continue from the target itself
            out.append(torch.multinomial(target_of[out[0]], 1).item())
        second[out[0], out[1]] += 1
    follows(first, target_of[0].double())
    for token in range(VOCAB):
        follows(second[token], target_of[token].double())


@pytest.mark.parametrize("block", [False, True])
def test_equal_distributions_accept_the_whole_chain(block):
    probs = torch.rand(50, 4, VOCAB).softmax(-1)
    candidates = torch.randint(0, VOCAB, (50, 4))
    coins = torch.rand(50, 4)
    results = run_chain(probs, probs[:, :3], candidates, coins, torch.rand(50), block)
    assert results["accept_token_num"].tolist() == [3] * 50


@pytest.mark.parametrize("block", [False, True])
def test_a_draft_that_was_not_drawn_is_rejected(block):
    target = torch.full((1, 3, VOCAB), 1 / VOCAB)
    draft = torch.full((1, 2, VOCAB), 1 / VOCAB)
    draft[0, 0] = float("nan")
    candidates = torch.zeros(1, 3, dtype=torch.int64)
    coins = torch.zeros(1, 3)
    results = run_chain(target, draft, candidates, coins, torch.tensor([0.5]), block)
    assert results["accept_token_num"].tolist() == [0]
    assert emitted(results, 0) == [2]


def test_block_verification_accepts_no_fewer_tokens():
    target = (torch.randn(4000, 4, VOCAB) * 2).softmax(-1)
    draft = (torch.randn(4000, 3, VOCAB) * 2).softmax(-1)
    drawn = [torch.multinomial(draft[:, i], 1) for i in range(3)]
    candidates = torch.cat([torch.zeros(4000, 1, dtype=torch.int64), *drawn], dim=1)
    coins, final = torch.rand(4000, 4), torch.rand(4000)
    mean = {
        block: run_chain(target, draft, candidates, coins, final, block)[
            "accept_token_num"
        ]
        .double()
        .mean()
        for block in (False, True)
    }
    assert mean[True] >= mean[False]
