"""Slots of a recurrent state pool, one per request, with padding requests left out."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class StateSlots:
    """Where the requests of a batch keep their states.

    Attributes:
        readable: [batch] int64, every request's slot; a padding request's is slot 0.
        real: [num_real] int64, the requests that are not padding, None for all of them.
    """

    readable: torch.Tensor
    real: torch.Tensor | None

    @classmethod
    def of(cls, slots: torch.Tensor, pad_slot_id: int = -1) -> "StateSlots":
        """The slots of a batch.

        Args:
            slots: [batch] int, `pad_slot_id` for a padding request.
        """
        numbers = slots.tolist()
        if pad_slot_id not in numbers:
            return cls(slots.to(torch.int64), None)
        real = [i for i, slot in enumerate(numbers) if slot != pad_slot_id]
        readable = [0 if slot == pad_slot_id else slot for slot in numbers]
        return cls(torch.tensor(readable), torch.tensor(real, dtype=torch.int64))

    def read(self, pool: torch.Tensor) -> torch.Tensor:
        """Copies of the requests' states, [batch, *state]."""
        return pool.index_select(0, self.readable)

    def write(self, pool: torch.Tensor, states: torch.Tensor) -> None:
        """Store states [batch, *state] in the slots of real requests."""
        self.write_rows(pool, self.readable, states)

    def write_rows(
        self, buffer: torch.Tensor, rows: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Store values [batch, ...] of real requests in rows [batch] of a buffer."""
        if self.real is not None:
            rows = rows.index_select(0, self.real)
            values = values.index_select(0, self.real)
        buffer.index_copy_(0, rows.to(torch.int64), values.to(buffer.dtype))

    def blank_padding(self, values: torch.Tensor) -> torch.Tensor:
        """Values [batch, ...] with those of padding requests 0."""
        if self.real is None:
            return values
        blanked = torch.zeros_like(values)
        return blanked.index_copy_(0, self.real, values.index_select(0, self.real))
