"""Reads and writes of words, of 1 to 16 bytes, at many places of an array of bytes.

NumPy moves rows of bytes one element at a time where it is given an array of indices;
``take`` and columns of integers do the same ten times as fast.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def integers(memory: Array, width: int) -> Array:
    """Contiguous bytes as [words, columns]: one integer a word, or two of 64 bits."""
    return memory.view(f"u{min(width, 8)}").reshape(-1, max(width // 8, 1))


def gather(memory: Array, index: Array, width: int) -> Array:
    """uint8 [*index, width]: the words at ``index`` [...] of uint8 [bytes]."""
    return memory.reshape(-1, width).take(index, axis=0)


def scatter(memory: Array, index: Array, values: Array) -> None:
    """Set the words at ``index`` [n] of uint8 [bytes]; ``values`` uint8 [n, width]."""
    width = values.shape[-1]
    set_rows(integers(memory, width), index, integers(_flat(values), width))


def fill(memory: Array, index: Array, width: int, value: int) -> None:
    """Set every byte of the words at ``index`` [n] of uint8 [bytes] to ``value``."""
    pattern = np.full((1, width), value, np.uint8)
    set_rows(integers(memory, width), index, integers(_flat(pattern), width))


def set_rows(table: Array, index: Array, values: Array) -> None:
    """``table[index] = values`` for index [n] and values [n or 1, columns or 1]."""
    for column in range(table.shape[1]):
        table[:, column][index] = values[:, min(column, values.shape[1] - 1)]


def differ(memory: Array, index: Array, values: Array) -> Array:
    """bool [n]: which words at ``index`` [n] are not ``values``, uint8 [n, width]."""
    width = values.shape[-1]
    found = integers(memory, width).take(index, axis=0)
    wanted = integers(_flat(values), width)
    different = found[:, 0] != wanted[:, 0]
    if found.shape[1] == 2:
        different |= found[:, 1] != wanted[:, 1]
    return different


def carry(flags: Array, index: Array, width: int, flag: int) -> Array:
    """bool, like ``index``: whether all ``width`` bytes of a word carry ``flag``."""
    words = integers(flags, width)
    pattern = integers(np.full(8, flag, np.uint8), min(width, 8))[0, 0]
    found = words.take(index, axis=0)
    if words.shape[1] == 1:
        return found[..., 0] == pattern
    return (found[..., 0] == pattern) & (found[..., 1] == pattern)


def _flat(values: Array) -> Array:
    return np.ascontiguousarray(values).reshape(-1)
