import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgl_kernel_cpu import min_p_renorm_prob, top_k_renorm_prob, top_p_renorm_prob
from sgl_kernel_cpu.sampling import sample

VOCAB = 7
ALL = 1 << 30  # sglang.srt.sampling.sampling_params.TOP_K_ALL

weights = st.lists(
    st.lists(
        st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0]), min_size=VOCAB, max_size=VOCAB
    ).map(lambda row: row if any(row) else [1.0] * VOCAB),
    min_size=1,
    max_size=4,
)


def distribution(rows):
    probs = torch.tensor(rows)
    return probs / probs.sum(-1, keepdim=True)


def check(filtered, probs, kept):
    """`kept(row)` gives the tokens that survive; they keep their proportions."""
    for out, row in zip(filtered, probs.double(), strict=True):
        tokens = kept(row)
        expected = torch.zeros(VOCAB, dtype=torch.float64)
        expected[tokens] = row[tokens] / row[tokens].sum()
        torch.testing.assert_close(out.double(), expected, atol=1e-6, rtol=1e-6)


@given(weights, st.integers(1, VOCAB + 1))
def test_top_k_keeps_the_best_and_their_equals(rows, top_k):
    probs = distribution(rows)

    def kept(row):
        last = row.sort(descending=True).values[min(top_k, VOCAB) - 1]
        return (row >= last).nonzero().flatten()

    check(top_k_renorm_prob(probs, torch.full((len(rows),), top_k)), probs, kept)
    check(top_k_renorm_prob(probs, top_k), probs, kept)


def test_every_row_has_its_own_top_k():
    probs = torch.rand(3, VOCAB).softmax(-1)
    out = top_k_renorm_prob(probs, torch.tensor([2, ALL, 1], dtype=torch.int32))
    assert (out > 0).sum(-1).tolist() == [2, VOCAB, 1]
    assert torch.equal(out[1], probs[1])


@given(
    weights,
    # Sums of a few small integers are never this close to a multiple of these.
    st.sampled_from([0.0, 0.101, 0.303, 0.505, 0.707, 0.909]),
)
def test_top_p_keeps_the_fewest_tokens_that_hold_p(rows, top_p):
    probs = distribution(rows)

    def kept(row):
        tokens, held = [], 0.0
        for token in row.sort(descending=True, stable=True).indices.tolist():
            tokens.append(token)
            held += row[token].item()
            if held >= top_p:
                return tokens
        return tokens

    check(top_p_renorm_prob(probs, torch.full((len(rows),), top_p)), probs, kept)


def test_every_row_has_its_own_top_p():
    probs = torch.tensor([[0.5, 0.3, 0.2]]).repeat(3, 1)
    out = top_p_renorm_prob(probs, torch.tensor([0.4, 1.0, 0.6]))
    expected = torch.tensor([[1.0, 0, 0], [0.5, 0.3, 0.2], [0.625, 0.375, 0]])
    torch.testing.assert_close(out, expected)


@given(weights, st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_min_p_is_relative_to_the_best_token(rows, min_p):
    probs = distribution(rows)

    def kept(row):
        return (row >= min_p * row.max()).nonzero().flatten()

    check(min_p_renorm_prob(probs, torch.full((len(rows),), min_p)), probs, kept)


def test_a_coin_picks_the_token_whose_share_it_falls_in():
    share = torch.tensor([[0.0, 1.0, 0.0, 3.0, 0.0]])
    coins = [0.0, 0.2499, 0.25, 0.9, 1 - 2**-24]
    picked = [sample(share, torch.tensor([coin])).item() for coin in coins]
    assert picked == [1, 1, 3, 3, 3]


def test_nothing_to_sample_from_gives_the_last_token():
    assert sample(torch.zeros(1, 5), torch.tensor([0.5])).tolist() == [4]


@pytest.mark.parametrize("num_rows", [0, 1, 3])
def test_filters_take_any_number_of_rows(num_rows):
    probs = torch.rand(num_rows, VOCAB).softmax(-1)
    assert top_k_renorm_prob(probs, torch.full((num_rows,), 2)).shape == probs.shape
    assert top_p_renorm_prob(probs, torch.full((num_rows,), 0.5)).shape == probs.shape
    assert min_p_renorm_prob(probs, torch.full((num_rows,), 0.1)).shape == probs.shape
