"""The state of several blocks that run the same instruction at the same time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nvfp4_proof.emulator.memory import GlobalMemory, SharedMemory
from nvfp4_proof.emulator.parse import Instruction, Program

Array = np.ndarray

UNSIGNED = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


class EmulationError(RuntimeError):
    """The program does what this emulator does not do, or what no program should."""


class Unsupported(EmulationError):
    """Something that this emulator does not do."""


@dataclass
class AsyncCopy:
    """A cp.async that is under way."""

    addresses: Array
    values: Array
    active: Array | None

    def select(self, chosen: Array) -> AsyncCopy:
        active = None if self.active is None else rows(self.active, chosen)
        return AsyncCopy(rows(self.addresses, chosen), self.values[chosen], active)


def rows(array: Array, chosen: Array) -> Array:
    """The chosen blocks of an array whose first dimension is blocks, or 1 for all."""
    return array if array.shape[0] == 1 else array[chosen]


class Batch:
    """Registers, shared memory and position of C blocks of T threads.

    A register is an array of unsigned integers (bool for predicates) whose shape
    broadcasts to [C, T]; what is the same for all threads has size 1 there.
    """

    def __init__(
        self,
        program: Program,
        memory: GlobalMemory,
        parameters: list[Array],
        blocks: Array,
        grid: Array,
        shared: SharedMemory,
        late_copies: bool,
        approximation: int,
    ) -> None:
        self.program = program
        self.memory = memory
        self.parameters = parameters  # uint64 [C, 1] or [1, 1] each
        self.blocks = blocks  # int [C, 3]: x, y, z of each block
        self.grid = grid  # int [C, 3]: blocks along each axis
        self.shared = shared
        self.late_copies = late_copies
        self.approximation = approximation
        self.registers: dict[str, Array] = {}
        self.uncommitted: list[AsyncCopy] = []
        self.committed: list[list[AsyncCopy]] = []
        self.position = 0
        self._remembered: dict[tuple, tuple[list[Array | None], Array]] = {}

    @property
    def size(self) -> int:
        return len(self.blocks)

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.program.threads

    def select(self, chosen: Array) -> Batch:
        """The part of this batch with the chosen blocks."""
        part = Batch(
            self.program,
            self.memory,
            [rows(parameter, chosen) for parameter in self.parameters],
            self.blocks[chosen],
            self.grid[chosen],
            self.shared.select(chosen),
            self.late_copies,
            self.approximation,
        )
        part.registers = {n: rows(v, chosen) for n, v in self.registers.items()}
        part.uncommitted = [copy.select(chosen) for copy in self.uncommitted]
        part.committed = [[c.select(chosen) for c in g] for g in self.committed]
        part.position = self.position
        return part

    def special(self, name: str) -> Array:
        """A special register such as %tid.x, as uint32."""
        base, _, axis = name[1:].partition(".")
        number = "xyz".find(axis)
        if base == "tid":
            if number:
                return np.zeros((1, 1), np.uint32)
            return np.arange(self.program.threads, dtype=np.uint32)[None, :]
        if base == "ctaid":
            return self.blocks[:, number : number + 1].astype(np.uint32)
        if base == "nctaid":
            return self.grid[:, number : number + 1].astype(np.uint32)
        if base == "laneid":
            return np.arange(self.program.threads, dtype=np.uint32)[None, :] % 32
        raise Unsupported(f"special register {name} is not emulated")

    def bits(self, operand: str, width: int) -> Array:
        """An operand as unsigned integers of ``width`` bits (bool for width 1)."""
        if operand in self.registers:
            value = self.registers[operand]
            kind = UNSIGNED[width]
            return value if value.dtype == kind else value.astype(kind)
        if self.program.is_register(operand):
            # LLVM leaves lanes undefined that it later discards; make them loud.
            poison = 0xA5A5A5A5A5A5A5A5 & ((1 << width) - 1)
            return np.full((1, 1), poison, UNSIGNED[width])
        if operand.startswith("%"):
            return self.special(operand).astype(UNSIGNED[width])
        return np.full((1, 1), literal(operand) & ((1 << width) - 1), UNSIGNED[width])

    def integer(self, operand: str, kind: str) -> Array:
        """An operand as the integer type ``kind``: s32, u16, b64 ..."""
        width = int(kind[1:])
        value = self.bits(operand, width)
        return value.view(SIGNED[width]) if kind[0] == "s" else value

    def predicate(self, operand: str) -> Array:
        return self.bits(operand, 1)

    def active(self, instruction: Instruction) -> Array | None:
        """Which threads run a guarded instruction; None means all."""
        if instruction.guard is None:
            return None
        return self.predicate(instruction.guard) ^ instruction.guard_negated

    def write(self, register: str, value: Array, active: Array | None = None) -> None:
        """Set a register to ``value``, widened by sign or with zeros to its width."""
        if register == "_":
            return
        width = self.program.bits(register)
        if value.dtype.kind == "i":
            value = value.astype(SIGNED[width], copy=False).view(UNSIGNED[width])
        elif value.dtype != UNSIGNED[width]:
            value = value.astype(UNSIGNED[width])
        if active is not None and not active.all():
            value = np.where(active, value, self.bits(register, width))
        self.registers[register] = value

    def remembered(self, key: tuple, compute: Callable[[], Array]) -> Array:
        """``compute()``, or its last result while the registers in ``key`` stay."""
        now = [self.registers.get(name) for name in key]
        known = self._remembered.get(key)
        if known and all(a is b for a, b in zip(known[0], now, strict=True)):
            return known[1]
        result = compute()
        self._remembered[key] = (now, result)
        return result

    def everywhere(self, value: Array) -> Array:
        """``value`` with its full shape [C, T]."""
        return (
            value if value.shape == self.shape else np.broadcast_to(value, self.shape)
        )


def literal(operand: str) -> int:
    """The bits of an immediate operand."""
    if operand.startswith(("0f", "0F", "0d", "0D")):
        return int(operand[2:], 16)
    if operand == "global_smem":
        return 0
    try:
        return int(operand.rstrip("U"), 0)
    except ValueError:
        raise Unsupported(f"operand {operand!r} is not emulated") from None


def vector(operand: str) -> list[str]:
    """Registers of ``{a, b}``, or the one of ``a``."""
    if operand.startswith("{"):
        return [part.strip() for part in operand.strip("{} ").split(",")]
    return [operand]
