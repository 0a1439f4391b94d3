"""MurmurHash3 of (seed, position, column): the random numbers of seeded sampling."""

import torch

from .registry import kernel

_MASK = 0xFFFFFFFF


def _rotate_left(x: torch.Tensor, bits: int) -> torch.Tensor:
    return ((x << bits) | (x >> (32 - bits))) & _MASK


def _mix(state: torch.Tensor, word: torch.Tensor) -> torch.Tensor:
    word = (word * 0xCC9E2D51) & _MASK
    word = (_rotate_left(word, 15) * 0x1B873593) & _MASK
    return (_rotate_left(state ^ word, 13) * 5 + 0xE6546B64) & _MASK


def _finalize(state: torch.Tensor, length: int) -> torch.Tensor:
    state = state ^ length
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _MASK
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _MASK
    return state ^ (state >> 16)


def _fake_hash(
    seed: torch.Tensor, positions: torch.Tensor, col_indices: torch.Tensor
) -> torch.Tensor:
    shape = (seed.shape[0], col_indices.shape[0])
    return seed.new_empty(shape, dtype=torch.uint32)


@kernel(
    "murmur_hash32_cpu(Tensor seed, Tensor positions, Tensor col_indices) -> Tensor",
    fake=_fake_hash,
)
def murmur_hash32_cpu(
    seed: torch.Tensor, positions: torch.Tensor, col_indices: torch.Tensor
) -> torch.Tensor:
    """MurmurHash3_x86_32 of 16 bytes: seed (8), position (4) and column (4).

    The words are held in int64, where a product of two 32-bit numbers may wrap: its low
    32 bits stay right.

    Args:
        seed: [num_rows] uint64.
        positions: [num_rows] int.
        col_indices: [num_columns] int.

    Returns:
        [num_rows, num_columns] uint32.
    """
    seed = seed.to(torch.int64)
    state = _mix(torch.zeros_like(seed), seed & _MASK)
    state = _mix(state, (seed >> 32) & _MASK)
    state = _mix(state, positions.to(torch.int64) & _MASK).unsqueeze(1)
    state = _mix(state, col_indices.to(torch.int64) & _MASK)
    return _finalize(state, 16).to(torch.uint32)
