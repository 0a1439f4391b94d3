"""What became of the drafts of one completion, as the server counts them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from harness.client import Client, Completion


@dataclass(frozen=True)
class Drafts:
    """Drafts of a completion, by their position in a verify step.

    Attributes:
        num_verifies: verify steps.
        accepted: drafts accepted at each position, from the first.
        proposed: drafts proposed at all positions together.
    """

    num_verifies: int
    accepted: tuple[int, ...]
    proposed: int

    @classmethod
    def of(cls, completion: Completion) -> Drafts:
        meta = completion.meta
        if "spec_verify_ct" not in meta:
            # The prefill made the only token.
            return cls(0, (), 0)
        histogram = meta["spec_correct_drafts_histogram"]
        assert sum(histogram) == meta["spec_verify_ct"]
        accepted = [sum(histogram[position:]) for position in range(1, len(histogram))]
        while accepted and not accepted[-1]:
            accepted.pop()
        assert sum(accepted) == meta["spec_num_correct_drafts"]
        return cls(
            meta["spec_verify_ct"], tuple(accepted), meta["spec_num_proposed_drafts"]
        )

    @classmethod
    def sum(cls, parts: Iterable[Drafts]) -> Drafts:
        """Return the drafts of several completions together."""
        parts = list(parts)
        by_position = zip_longest(*(part.accepted for part in parts), fillvalue=0)
        return cls(
            sum(part.num_verifies for part in parts),
            tuple(map(sum, by_position)),
            sum(part.proposed for part in parts),
        )


@dataclass(frozen=True)
class Outcome:
    """Tokens and drafts of a completion: what no cache and no update may change."""

    token_ids: tuple[int, ...]
    drafts: Drafts

    @classmethod
    def of(cls, completion: Completion) -> Outcome:
        return cls(completion.token_ids, Drafts.of(completion))


def outcomes_of(
    client: Client, prompts: Sequence[str], num_tokens: int
) -> list[Outcome]:
    """Complete prompts greedily from an empty cache.

    One after the other, so that a round holds the same rows in every server.
    """
    client.flush_cache()
    sampling = {"temperature": 0, "max_new_tokens": num_tokens, "ignore_eos": True}
    return [Outcome.of(client.generate(prompt, sampling)) for prompt in prompts]
