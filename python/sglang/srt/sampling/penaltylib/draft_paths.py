"""Penalties of the rows of a verify step, each with the drafts that lead to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

import torch

from sglang.srt.sampling.penaltylib.frequency_penalty import BatchedFrequencyPenalizer
from sglang.srt.sampling.penaltylib.min_new_tokens import BatchedMinNewTokensPenalizer
from sglang.srt.sampling.penaltylib.presence_penalty import BatchedPresencePenalizer
from sglang.srt.sampling.penaltylib.repetition_penalty import (
    BatchedRepetitionPenalizer,
    apply_scaling_penalties,
)
from sglang.srt.utils.common import is_pin_memory_available

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.sampling.penaltylib.orchestrator import (
        BatchedPenalizerOrchestrator,
    )
    from sglang.srt.speculative.eagle_info import EagleVerifyInput


@dataclass(frozen=True)
class TokenPenalty:
    """A penalty on tokens that have occurred.

    Attributes:
        strength: [batch_size, 1], what one occurrence costs.
        accumulated: [batch_size, vocabulary], after the committed tokens.
    """

    strength: torch.Tensor
    accumulated: torch.Tensor


@dataclass(frozen=True)
class MinNewTokens:
    """A bound below which stop tokens are forbidden.

    Attributes:
        bound: [batch_size, 1].
        num_committed: [batch_size, 1], output tokens so far.
        stop_tokens: [batch_size, vocabulary], minus infinity at each stop token.
    """

    bound: torch.Tensor
    num_committed: torch.Tensor
    stop_tokens: torch.Tensor


@dataclass(frozen=True)
class DraftPathPenalties:
    """A copy of a batch's penalties, safe from the preparation of the next batch."""

    frequency: Optional[TokenPenalty]
    presence: Optional[TokenPenalty]
    repetition: Optional[TokenPenalty]
    min_new_tokens: Optional[MinNewTokens]

    @classmethod
    def of(cls, orchestrator: BatchedPenalizerOrchestrator) -> DraftPathPenalties:
        def prepared(kind):
            penalizer = orchestrator.penalizers.get(kind)
            return penalizer if penalizer and penalizer.is_prepared() else None

        frequency = prepared(BatchedFrequencyPenalizer)
        presence = prepared(BatchedPresencePenalizer)
        repetition = prepared(BatchedRepetitionPenalizer)
        shortest = prepared(BatchedMinNewTokensPenalizer)
        return cls(
            frequency=frequency
            and TokenPenalty(
                frequency.frequency_penalties,
                frequency.cumulated_frequency_penalties.clone(),
            ),
            presence=presence
            and TokenPenalty(
                presence.presence_penalties,
                presence.cumulated_presence_penalties.clone(),
            ),
            repetition=repetition
            and TokenPenalty(
                repetition.repetition_penalties,
                repetition.cumulated_repetition_penalties.clone(),
            ),
            min_new_tokens=shortest
            and MinNewTokens(
                shortest.min_new_tokens,
                shortest.len_output_tokens.clone(),
                shortest.stop_token_penalties,
            ),
        )

    def apply(self, logits: torch.Tensor, verify_input: EagleVerifyInput) -> None:
        """Penalise each row as decoding one token at a time would have.

        Args:
            logits: [batch_size * num_draft_tokens, vocabulary], changed in place.
        """
        paths = draft_paths(
            verify_input.retrieve_next_token, verify_input.retrieve_next_sibling
        )
        rows = logits.view(*paths.shape[:2], logits.shape[-1])
        if self.min_new_tokens is not None:
            num_tokens = self.min_new_tokens.num_committed + paths.sum(-1)
            is_short = num_tokens < self.min_new_tokens.bound
            forbidden = self.min_new_tokens.stop_tokens[:, None]
            rows.add_(torch.where(is_short[..., None], forbidden, 0.0))
        if not (self.frequency or self.presence or self.repetition):
            return
        counts = token_counts(
            paths, verify_input.draft_token.view(paths.shape[:2]), logits.shape[-1]
        )
        if self.frequency is not None:
            rows.sub_(self.frequency.accumulated[:, None])
            rows.sub_(self.frequency.strength[:, None] * counts)
        if self.presence is not None:
            rows.sub_(_where_present(counts, self.presence))
        if self.repetition is not None:
            scaling = _where_present(counts, self.repetition)
            apply_scaling_penalties(logits, scaling.flatten(0, 1))


def _where_present(counts: torch.Tensor, penalty: TokenPenalty) -> torch.Tensor:
    return torch.where(
        counts > 0, penalty.strength[:, None], penalty.accumulated[:, None]
    )


def draft_paths(next_token: torch.Tensor, next_sibling: torch.Tensor) -> torch.Tensor:
    """Tell which drafts each row of a verify step has behind it.

    Args:
        next_token: [batch_size, num_draft_tokens], first child of each row, or -1.
        next_sibling: the same for its next sibling; both come after the row itself.

    Returns:
        [batch_size, num_draft_tokens, num_draft_tokens] bool; ``[b, i, j]`` is true for
        each row j but the first on the way to row i, and for i itself.
    """
    batch_size, width = next_token.shape
    # The last column collects what is linked to by -1.
    parents = next_token.new_zeros(batch_size, width + 1)
    paths = torch.zeros(
        batch_size, width, width, dtype=torch.bool, device=next_token.device
    )
    requests = torch.arange(batch_size, device=next_token.device)
    for row in range(width):
        if row > 0:
            paths[:, row] = paths[requests, parents[:, row]]
            paths[:, row, row] = True
        for links, parent in (
            (next_token, torch.full_like(requests, row)),
            (next_sibling, parents[:, row].clone()),
        ):
            target = torch.where(links[:, row] < 0, width, links[:, row]).long()
            parents[requests, target] = parent.to(parents.dtype)
    return paths


def token_counts(
    paths: torch.Tensor, draft_tokens: torch.Tensor, vocab_size: int
) -> torch.Tensor:
    """Count each token among the drafts behind each row.

    Args:
        paths: see ``draft_paths``.
        draft_tokens: [batch_size, num_draft_tokens].

    Returns:
        [batch_size, num_draft_tokens, vocabulary] float32.
    """
    counts = torch.zeros(*paths.shape[:2], vocab_size, device=paths.device)
    tokens = draft_tokens.long()[:, None].expand_as(paths)
    return counts.scatter_add_(2, tokens, paths.float())


def cumulate_committed_tokens(batch: ScheduleBatch) -> None:
    """Feed the penalizers every output token that they have not seen.

    A verify step may commit several tokens for one request and one for the next.
    """
    rows: list[int] = []
    tokens: list[int] = []
    for row, req in enumerate(batch.reqs):
        unseen = req.output_ids[req.num_penalized_tokens :]
        req.num_penalized_tokens += len(unseen)
        rows.extend([row] * len(unseen))
        tokens.extend(unseen)
    if not tokens:
        return
    pin_memory = is_pin_memory_available(batch.device)
    pairs = torch.tensor([rows, tokens], dtype=torch.int64, pin_memory=pin_memory)
    rows_device, tokens_device = pairs.to(batch.device, non_blocking=True)
    for penalizer in batch.sampling_info.penalizer_orchestrator.penalizers.values():
        if penalizer.is_prepared():
            penalizer.cumulate_at(rows_device, tokens_device)
