"""Acceptance by position, against counting each draft by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sglang.srt.observability.spec_acceptance import AcceptanceCounts, SpecAcceptance

NUM_DRAFTS = 3
STEPS = st.lists(st.integers(0, NUM_DRAFTS), max_size=40)


@given(STEPS)
def test_counts_are_those_of_the_definition(steps: list[int]):
    counts = AcceptanceCounts()
    counts.add(steps, NUM_DRAFTS)
    assert counts.proposed == [len(steps)] * NUM_DRAFTS
    assert counts.accepted == [
        sum(correct > position for correct in steps) for position in range(NUM_DRAFTS)
    ]
    assert sum(counts.accepted) == sum(steps)


@given(STEPS)
def test_rates_multiply_to_the_share_of_fully_accepted_steps(steps: list[int]):
    counts = AcceptanceCounts()
    counts.add(steps, NUM_DRAFTS)
    product = 1.0
    for rate in counts.conditional_rates:
        product *= rate
    full = steps.count(NUM_DRAFTS) / len(steps) if steps else 0.0
    assert abs(product - full) < 1e-12


@given(STEPS)
def test_a_histogram_gives_what_its_steps_give(steps: list[int]):
    histogram = [steps.count(correct) for correct in range(NUM_DRAFTS + 1)]
    counts = AcceptanceCounts()
    counts.add(steps, NUM_DRAFTS)
    assert AcceptanceCounts.of_histogram(histogram, NUM_DRAFTS) == counts


def test_a_position_outside_the_budget_is_not_a_rejection():
    counts = AcceptanceCounts()
    counts.add([1], num_drafts=1)
    counts.add([3], num_drafts=3)
    assert counts.proposed == [2, 1, 1]
    assert counts.conditional_rates == [1.0, 1.0, 1.0]


def test_a_step_without_drafts_counts_nothing():
    counts = AcceptanceCounts()
    counts.add([0, 0], num_drafts=0)
    assert counts == AcceptanceCounts()


def test_closing_a_window_keeps_the_lifetime_and_starts_anew():
    acceptance = SpecAcceptance()
    acceptance.add([3, 0], NUM_DRAFTS)
    assert acceptance.close_window() == "0.50/1.00/1.00"
    assert acceptance.close_window() == ""
    acceptance.add([0, 0], NUM_DRAFTS)
    assert acceptance.lifetime.proposed == [4, 4, 4]
    assert acceptance.lifetime.accepted == [1, 1, 1]
