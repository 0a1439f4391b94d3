"""What crosses the boundaries of a chain round: draft, verify, draft-extend."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from sglang.srt.model_executor.forward_batch_info import ForwardBatch


@dataclass(frozen=True)
class RoundInputs:
    """The window of slots that every forward of one round works on.

    A round of ``num_steps`` drafts has ``width = num_steps + 1`` tokens a request: the
    token that the last round left over, then the drafts.

    Attributes:
        num_steps: drafts a request.
        seq_lens: [batch_size] int64, tokens whose KV is committed.
        positions: [batch_size, width] int64, absolute positions of the window.
        cache_locs: [batch_size, width] int64, the window's slots in the KV pool.
        is_text_only: no request has an image; rotary positions are ``positions``.
    """

    num_steps: int
    seq_lens: torch.Tensor
    positions: torch.Tensor
    cache_locs: torch.Tensor
    is_text_only: bool

    @property
    def batch_size(self) -> int:
        return self.positions.shape[0]

    @property
    def width(self) -> int:
        return self.positions.shape[1]

    @property
    def first_rows(self) -> torch.Tensor:
        """[batch_size] int64: each request's first row of a flattened window."""
        return _multiples(self.batch_size, self.width, self.positions.device)

    @property
    def rows(self) -> torch.Tensor:
        """[batch_size, width] int32: the rows of a flattened window."""
        return _rows(self.batch_size, self.width, self.positions.device)

    @property
    def columns(self) -> torch.Tensor:
        """[width] int32: the positions within a window."""
        return _rows(1, self.width, self.positions.device)[0]

    def mrope_positions(self, positions: torch.Tensor) -> torch.Tensor | None:
        """[3, n] rotary positions of text; None where an image shifts them."""
        return positions.expand(3, -1) if self.is_text_only else None

    @classmethod
    def gather(cls, batch, req_to_token: torch.Tensor, num_steps: int) -> RoundInputs:
        """Read positions and slots of the window from the request table, once."""
        columns = _multiples(num_steps + 1, 1, batch.seq_lens.device)
        positions = batch.seq_lens[:, None] + columns
        cache_locs = req_to_token[batch.req_pool_indices[:, None], positions]
        return cls(
            num_steps=num_steps,
            seq_lens=batch.seq_lens,
            positions=positions,
            cache_locs=cache_locs.long(),
            is_text_only=all(item is None for item in batch.multimodal_inputs or ()),
        )


@dataclass(frozen=True)
class Verified:
    """What the target made of a window.

    Attributes:
        forward_batch: of the verify forward; draft-extend reuses it.
        logits_output: the target's; its hidden states cover every row of the window.
        predicted: [batch_size * width] int32, the target's token after each row.
        accept_lens: [batch_size] int32, accepted drafts plus the bonus token.
        accept_index: [batch_size, width] int32, accepted rows, -1 after the last.
    """

    forward_batch: ForwardBatch
    logits_output: object
    predicted: torch.Tensor
    accept_lens: torch.Tensor
    accept_index: torch.Tensor


@lru_cache(maxsize=64)
def _rows(count: int, width: int, device: torch.device) -> torch.Tensor:
    rows = torch.arange(count * width, dtype=torch.int32, device=device)
    return rows.view(count, width)


@lru_cache(maxsize=64)
def _multiples(count: int, step: int, device: torch.device) -> torch.Tensor:
    return torch.arange(0, count * step, step, device=device)
