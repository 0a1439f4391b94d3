"""Shapes of the tensors that store one weight, before any repacking.

Weights are [rows, columns] = [out, in]. FP4 values lie two to a byte along the columns,
narrow integers 32 bits to a word; scales stand for blocks of columns or of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]

_WORD_BITS = 32


@dataclass(frozen=True)
class QuantizationSizes:
    """Sizes that a quantisation config fixes; the defaults are what exporters use.

    Attributes:
        group_sizes: columns that share a scale; -1 for all columns.
        bits: of one integer value.
        block_size: rows and columns that share an FP8 scale.
    """

    group_sizes: tuple[int, ...] = (128, 64, 32, -1)
    bits: tuple[int, ...] = (4, 8)
    block_size: tuple[int, int] = (128, 128)


@dataclass(frozen=True)
class StoredShapes:
    """The shapes that the tensors of a [rows, columns] weight may have."""

    rows: int
    columns: int
    sizes: QuantizationSizes

    def weight(self) -> Shapes:
        return ((self.rows, self.columns),)

    def half_weight(self) -> Shapes:
        return ((self.rows, self.columns // 2),)

    def scalar(self) -> Shapes:
        return ((), (1,))

    def pair(self) -> Shapes:
        return ((2,),)

    def one_a_column(self) -> Shapes:
        return ((self.columns,),)

    def one_in_16_columns(self) -> Shapes:
        return ((self.rows, self.columns // 16),)

    def one_in_32_columns(self) -> Shapes:
        return ((self.rows, self.columns // 32),)

    def block_grid(self) -> Shapes:
        rows, columns = self.sizes.block_size
        return ((_ceil_div(self.rows, rows), _ceil_div(self.columns, columns)),)

    def scalar_or_rows(self) -> Shapes:
        return (*self.scalar(), (self.rows,), (self.rows, 1))

    def scalar_rows_or_blocks(self) -> Shapes:
        return (*self.scalar_or_rows(), *self.block_grid())

    def rows_by_packed_columns(self) -> Shapes:
        return tuple((self.rows, packed) for packed in self._packed(self.columns))

    def packed_rows_by_groups(self) -> Shapes:
        return tuple(
            (packed, groups)
            for packed in self._packed(self.rows)
            for groups in self._groups()
        )

    def rows_by_groups(self) -> Shapes:
        return tuple((self.rows, groups) for groups in self._groups())

    def packed_columns_by_rows(self) -> Shapes:
        return tuple((packed, self.rows) for packed in self._packed(self.columns))

    def columns_by_packed_rows(self) -> Shapes:
        return tuple((self.columns, packed) for packed in self._packed(self.rows))

    def groups_by_rows(self) -> Shapes:
        return tuple((groups, self.rows) for groups in self._groups())

    def groups_by_packed_rows(self) -> Shapes:
        return tuple(
            (groups, packed) for packed, groups in self.packed_rows_by_groups()
        )

    def _groups(self) -> tuple[int, ...]:
        return _unique(
            1 if size == -1 else _ceil_div(self.columns, size)
            for size in self.sizes.group_sizes
        )

    def _packed(self, count: int) -> tuple[int, ...]:
        return _unique(_ceil_div(count * bits, _WORD_BITS) for bits in self.sizes.bits)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _unique(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(values))
