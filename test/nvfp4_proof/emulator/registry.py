"""Which function executes which opcode."""

from __future__ import annotations

from collections.abc import Callable

from nvfp4_proof.emulator.batch import Batch, Unsupported
from nvfp4_proof.emulator.parse import Instruction

Executor = Callable[[Batch, Instruction], None]

_executors: dict[str, Executor] = {}


def executes(*names: str) -> Callable[[Executor], Executor]:
    """Register a function for opcodes that start with ``name.`` or equal it."""

    def register(executor: Executor) -> Executor:
        for name in names:
            if name in _executors:
                raise ValueError(f"{name} has two executors")
            _executors[name] = executor
        return executor

    return register


def executor(instruction: Instruction) -> Executor:
    """The executor of an instruction: the one with the longest matching name."""
    parts = instruction.opcode.split(".")
    for length in range(len(parts), 0, -1):
        found = _executors.get(".".join(parts[:length]))
        if found is not None:
            return found
    raise Unsupported(f"opcode {instruction.opcode} is not emulated")
