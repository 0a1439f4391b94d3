"""At temperature 1, NEXTN draws from the distribution of the model itself.

Method: many completions of four tokens after one prompt. Two samples are compared by
Pearson's chi-square test of homogeneity, a sample and exact probabilities by the test
of goodness of fit. Outcomes too rare for the test are pooled, tuples by their first
token. A test fails when p < THRESHOLD; of right servers, one run in a thousand fails
one of the six comparisons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np
import pytest
import torch
from scipy import stats

from harness.client import Client
from harness.reference import Reference

SAMPLES = 4000
PER_REQUEST = 250
TOKENS = 4
THRESHOLD = 1e-3 / 6
PROMPT = "    for "
# Pearson's test is sound when every expected count is at least about five.
FEWEST_EXPECTED = 5

Sample = tuple[int, ...]


@pytest.fixture(scope="module")
def prompt(dense_reference: Reference) -> list[int]:
    ids: list[int] = dense_reference.tokenizer(PROMPT).input_ids
    return ids


@pytest.fixture(scope="module")
def drawn() -> dict[tuple[str, float], list[Sample]]:
    """Samples by server and temperature: drawn once for all tests."""
    return {}


@pytest.fixture
def draw(
    drawn: dict[tuple[str, float], list[Sample]], prompt: list[int]
) -> Callable[..., list[Sample]]:
    def samples(client: Client, temperature: float = 1.0) -> list[Sample]:
        key = (client.url, temperature)
        if key not in drawn:
            sampling = {
                "temperature": temperature,
                "max_new_tokens": TOKENS,
                "ignore_eos": True,
            }
            drawn[key] = [
                completion.token_ids
                for _ in range(SAMPLES // PER_REQUEST)
                for completion in client.generate_batch(
                    [prompt] * PER_REQUEST, sampling
                )
            ]
        return drawn[key]

    return samples


@pytest.mark.parametrize("length", [1, 2, TOKENS])
def test_first_tokens_are_distributed_as_without_nextn(
    nextn: Client, plain: Client, draw: Callable[..., list[Sample]], length: int
) -> None:
    assert homogeneity(draw(nextn), draw(plain), length) > THRESHOLD


@pytest.mark.parametrize("which", [0, 1], ids=["nextn", "plain"])
def test_first_two_tokens_have_the_models_own_probabilities(
    pair: list[Client],
    dense_reference: Reference,
    prompt: list[int],
    draw: Callable[..., list[Sample]],
    which: int,
) -> None:
    samples = draw(pair[which])
    exact = pair_probabilities(dense_reference, prompt)
    assert goodness_of_fit([sample[:2] for sample in samples], exact) > THRESHOLD


def test_the_last_token_does_not_depend_on_how_it_was_drafted(
    nextn: Client, plain: Client, draw: Callable[..., list[Sample]]
) -> None:
    """Token four is often one that replaces a rejected draft."""
    last = [[sample[-1:] for sample in draw(client)] for client in (nextn, plain)]
    assert homogeneity(*last, length=1) > THRESHOLD


@pytest.mark.parametrize("length", [1, 2, TOKENS])
def test_the_comparison_tells_temperature_1_from_1_15(
    nextn: Client, plain: Client, draw: Callable[..., list[Sample]], length: int
) -> None:
    """The control: this small a difference is found by the same test."""
    assert homogeneity(draw(nextn), draw(plain, 1.15), length) < THRESHOLD


def test_exact_probabilities_tell_temperature_1_from_1_15(
    plain: Client,
    dense_reference: Reference,
    prompt: list[int],
    draw: Callable[..., list[Sample]],
) -> None:
    samples = [sample[:2] for sample in draw(plain, 1.15)]
    exact = pair_probabilities(dense_reference, prompt)
    assert goodness_of_fit(samples, exact) < THRESHOLD


def pair_probabilities(
    reference: Reference, prompt: Sequence[int]
) -> dict[Sample, float]:
    """Return the probability of each pair of first tokens."""
    first = reference.next_token_probabilities(torch.tensor([prompt]))[0]
    vocabulary = torch.arange(len(first))[:, None]
    prompts = torch.cat([torch.tensor([prompt]).expand(len(first), -1), vocabulary], 1)
    second = reference.next_token_probabilities(prompts)
    joint = (first[:, None] * second).tolist()
    return {(i, j): p for i, row in enumerate(joint) for j, p in enumerate(row)}


def homogeneity(one: list[Sample], other: list[Sample], length: int) -> float:
    """Return p of the hypothesis that both samples have the same distribution."""
    counts = [Counter(sample[:length] for sample in side) for side in (one, other)]
    total = counts[0] + counts[1]
    bins = pooled(total, total, 2 * FEWEST_EXPECTED)
    table = np.array([tally(side, bins) for side in counts])
    return float(stats.chi2_contingency(table).pvalue)


def goodness_of_fit(samples: list[Sample], exact: dict[Sample, float]) -> float:
    """Return p of the hypothesis that the samples have the exact probabilities."""
    expected = {outcome: p * len(samples) for outcome, p in exact.items()}
    bins = pooled(exact, expected, FEWEST_EXPECTED)
    observed = tally(Counter(samples), bins)
    return float(stats.chisquare(observed, tally(expected, bins)).pvalue)


def pooled(
    outcomes: Iterable[Sample], weight: dict[Sample, float], fewest: float
) -> dict[Sample, Hashable]:
    """Return a bin for each outcome: its own, its first token's, or the common one."""
    by_first: Counter[int] = Counter()
    rare = [outcome for outcome in outcomes if weight[outcome] < fewest]
    for outcome in rare:
        by_first[outcome[0]] += weight[outcome]
    bins: dict[Sample, Hashable] = {outcome: outcome for outcome in weight}
    for outcome in rare:
        first = outcome[0]
        bins[outcome] = first if by_first[first] >= fewest else "rare"
    return bins


def tally(counts: dict[Sample, float], bins: dict[Sample, Hashable]) -> list[float]:
    """Return the sum of the counts in each bin."""
    sums = dict.fromkeys(bins.values(), 0.0)
    for outcome, count in counts.items():
        sums[bins[outcome]] += count
    return [*sums.values()]
