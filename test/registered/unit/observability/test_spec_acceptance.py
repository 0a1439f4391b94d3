"""Acceptance by position, against counting each draft by hand."""

import itertools
import unittest

from sglang.srt.observability.spec_acceptance import AcceptanceCounts, SpecAcceptance
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

NUM_DRAFTS = 3


def all_runs():
    """Every run of up to four verify steps, by drafts accepted in each step."""
    for num_steps in range(5):
        yield from map(list, itertools.product(range(NUM_DRAFTS + 1), repeat=num_steps))


def counts_of(steps):
    counts = AcceptanceCounts()
    counts.add(steps, NUM_DRAFTS)
    return counts


class TestSpecAcceptance(CustomTestCase):
    def test_counts_are_those_of_the_definition(self):
        for steps in all_runs():
            counts = counts_of(steps)
            accepted = [
                sum(correct > position for correct in steps)
                for position in range(NUM_DRAFTS)
            ]
            self.assertEqual(counts.proposed, [len(steps)] * NUM_DRAFTS)
            self.assertEqual(counts.accepted, accepted)
            self.assertEqual(sum(counts.accepted), sum(steps))

    def test_rates_multiply_to_the_share_of_fully_accepted_steps(self):
        for steps in all_runs():
            product = 1.0
            for rate in counts_of(steps).conditional_rates:
                product *= rate
            full = steps.count(NUM_DRAFTS) / len(steps) if steps else 0.0
            self.assertAlmostEqual(product, full, places=12)

    def test_a_histogram_gives_what_its_steps_give(self):
        for steps in all_runs():
            histogram = [steps.count(correct) for correct in range(NUM_DRAFTS + 1)]
            counts = AcceptanceCounts.of_histogram(histogram, NUM_DRAFTS)
            self.assertEqual(counts, counts_of(steps))

    def test_a_position_outside_the_budget_is_not_a_rejection(self):
        counts = AcceptanceCounts()
        counts.add([1], num_drafts=1)
        counts.add([3], num_drafts=3)
        self.assertEqual(counts.proposed, [2, 1, 1])
        self.assertEqual(counts.conditional_rates, [1.0, 1.0, 1.0])

    def test_a_step_without_drafts_counts_nothing(self):
        counts = AcceptanceCounts()
        counts.add([0, 0], num_drafts=0)
        self.assertEqual(counts, AcceptanceCounts())

    def test_closing_a_window_keeps_the_lifetime_and_starts_anew(self):
        acceptance = SpecAcceptance()
        acceptance.add([3, 0], NUM_DRAFTS)
        self.assertEqual(acceptance.close_window(), "0.50/1.00/1.00")
        self.assertEqual(acceptance.close_window(), "")
        acceptance.add([0, 0], NUM_DRAFTS)
        self.assertEqual(acceptance.lifetime.proposed, [4, 4, 4])
        self.assertEqual(acceptance.lifetime.accepted, [1, 1, 1])


if __name__ == "__main__":
    unittest.main()
