"""Counts how often the draft at each position of a round is accepted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class AcceptanceCounts:
    """Drafts by their position in a round, counted over verify steps.

    A draft is proposed at every position of a step's budget. It is accepted when it and
    all drafts before it are right, and reached when those before it are.

    Attributes:
        proposed: drafts proposed at each position, from the first.
        reached: those of them whose predecessors were accepted.
        accepted: those of them that were accepted.
    """

    proposed: list[int] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def add(self, num_correct_drafts: Iterable[int], num_drafts: int) -> None:
        """Count one verify step of each request.

        Args:
            num_correct_drafts: accepted drafts of each request, bonus token left out.
            num_drafts: drafts proposed to each request.
        """
        self._grow(num_drafts)
        for correct in num_correct_drafts:
            for position in range(num_drafts):
                self.proposed[position] += 1
                self.reached[position] += position <= correct
                self.accepted[position] += position < correct

    def add_counts(self, other: AcceptanceCounts) -> None:
        """Add the counts of another period."""
        self._grow(len(other.proposed))
        for position in range(len(other.proposed)):
            self.proposed[position] += other.proposed[position]
            self.reached[position] += other.reached[position]
            self.accepted[position] += other.accepted[position]

    @classmethod
    def of_histogram(
        cls, histogram: Sequence[int], num_drafts: int
    ) -> AcceptanceCounts:
        """Counts of a request from its number of verify steps by accepted drafts."""
        counts = cls()
        for correct, num_steps in enumerate(histogram):
            counts.add([correct] * num_steps, num_drafts)
        return counts

    @property
    def conditional_rates(self) -> list[float]:
        """Share of the reached drafts at each position that were accepted."""
        return [
            self.accepted[position] / reached if reached else 0.0
            for position, reached in enumerate(self.reached)
        ]

    def _grow(self, num_positions: int) -> None:
        missing = num_positions - len(self.proposed)
        for counts in (self.proposed, self.reached, self.accepted):
            counts.extend([0] * missing)


@dataclass
class SpecAcceptance:
    """Acceptance since the last report, and in the server's whole life."""

    window: AcceptanceCounts = field(default_factory=AcceptanceCounts)
    total: AcceptanceCounts = field(default_factory=AcceptanceCounts)
    window_rates: list[float] = field(default_factory=list)

    def add(self, num_correct_drafts: Iterable[int], num_drafts: int) -> None:
        """See ``AcceptanceCounts.add``."""
        self.window.add(num_correct_drafts, num_drafts)

    def close_window(self) -> str:
        """End the window and return its rates for the log, as ``0.87/0.75/0.62``."""
        self.window_rates = self.window.conditional_rates
        self.total.add_counts(self.window)
        self.window = AcceptanceCounts()
        return "/".join(f"{rate:.2f}" for rate in self.window_rates)

    @property
    def lifetime(self) -> AcceptanceCounts:
        """Everything counted so far, the open window included."""
        counts = AcceptanceCounts()
        counts.add_counts(self.total)
        counts.add_counts(self.window)
        return counts
