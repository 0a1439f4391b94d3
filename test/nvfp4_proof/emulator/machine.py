"""Run a compiled kernel over its grid.

The threads of a block run in lockstep, and so do blocks until they branch apart; then
each part runs to its end on its own. That is one legal schedule of the device. What it
cannot show is the order in which different blocks see each other's plain stores; the
kernels order those by atomics, which the emulator executes one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nvfp4_proof.compiler import Compiled
from nvfp4_proof.emulator import arithmetic, conversion, transfer, warp
from nvfp4_proof.emulator.batch import Batch, EmulationError, Unsupported
from nvfp4_proof.emulator.memory import GlobalMemory, MemoryFault, SharedMemory
from nvfp4_proof.emulator.parse import Instruction, Program, parse
from nvfp4_proof.emulator.registry import executes, executor
from sgl_kernel_nvfp4.launch import Launch

EXECUTOR_MODULES = (arithmetic, conversion, transfer, warp)

MAX_STEPS = 10_000_000
THREADS_AT_ONCE = 8192


@dataclass(frozen=True)
class Schedule:
    """How to run.

    late_copies: cp.async lands when a wait demands it, not when it is issued.
    approximation: units in the last place that approximate instructions are off.
    order: seed of a permutation of the blocks; None keeps their order.
    check_races: watch shared memory for races between warps.
    blocks: (x, y, z) of the blocks to run; None runs all.
    """

    late_copies: bool = True
    approximation: int = 0
    order: int | None = None
    check_races: bool = True
    blocks: tuple[tuple[int, int, int], ...] | None = None


DEFAULT_SCHEDULE = Schedule()


@executes("bar.sync", "barrier.sync")
def barrier(batch: Batch, instruction: Instruction) -> None:
    batch.shared.barrier()


@executes("membar", "fence")
def fence(batch: Batch, instruction: Instruction) -> None:
    """Nothing: accesses take effect at once."""


class Machine:
    """A parsed kernel, to be run on many sets of arguments."""

    def __init__(self, compiled: Compiled) -> None:
        self.program: Program = parse(compiled.ptx)
        self.shared_bytes = compiled.shared_bytes
        self.granule = _narrowest_shared_store(self.program)
        self.steps = [
            None if i.name in ("bra", "ret", "exit") else executor(i)
            for i in self.program.instructions
        ]

    def run(
        self, launch: Launch, schedule: Schedule = DEFAULT_SCHEDULE
    ) -> GlobalMemory:
        """Run ``launch`` in place: tensors change as the device would change them."""
        return self.run_together([launch], schedule)

    def run_together(
        self, launches: Sequence[Launch], schedule: Schedule = DEFAULT_SCHEDULE
    ) -> GlobalMemory:
        """Run launches of this kernel, whose blocks share one schedule."""
        memory = GlobalMemory()
        parameters = np.array(
            [self._parameters(launch, memory) for launch in launches], np.uint64
        )
        memory.load_tensors()
        grids = np.array([(*launch.grid, 1, 1)[:3] for launch in launches])
        of_launch = [_blocks(grid, schedule.blocks) for grid in grids]
        blocks = np.concatenate(of_launch)
        launch = np.repeat(np.arange(len(launches)), [len(b) for b in of_launch])
        if schedule.order is not None:
            order = np.random.default_rng(schedule.order).permutation(len(blocks))
            blocks, launch = blocks[order], launch[order]
        at_once = max(THREADS_AT_ONCE // self.program.threads, 1)
        for start in range(0, len(blocks), at_once):
            part = blocks[start : start + at_once]
            mine = launch[start : start + at_once]
            shared = SharedMemory(
                len(part), self.shared_bytes, self.granule, schedule.check_races
            )
            self._run_batch(
                Batch(
                    self.program,
                    memory,
                    [_uniform(column) for column in parameters[mine].T],
                    part,
                    grids[mine],
                    shared,
                    schedule.late_copies,
                    schedule.approximation,
                )
            )
        memory.store_tensors()
        return memory

    def _parameters(self, launch: Launch, memory: GlobalMemory) -> list[int]:
        """The bits of the parameters; tensors of the launch are mapped into memory."""
        parameters = []
        for name, value in launch.arguments.items():
            if isinstance(value, torch.Tensor):
                parameters.append(memory.add(value, name not in launch.writes))
            elif isinstance(value, float):
                parameters.append(int(np.float32(value).view(np.uint32)))
            else:
                parameters.append(int(value) % (1 << 64))
        extra = len(self.program.parameters) - len(parameters)
        if not 0 <= extra <= 2:  # Triton adds pointers to scratch memory.
            raise EmulationError(
                f"the kernel has {len(self.program.parameters)} parameters, the launch "
                f"{len(parameters)} arguments"
            )
        return parameters + [0] * extra

    def _run_batch(self, batch: Batch) -> None:
        waiting = [batch]
        while waiting:
            waiting += self._run_until_apart(waiting.pop())

    def _run_until_apart(self, batch: Batch) -> list[Batch]:
        """Run to the end, or to where blocks part; return the parts."""
        for _ in range(MAX_STEPS):
            instruction = self.program.instructions[batch.position]
            step = self.steps[batch.position]
            batch.position += 1
            if step is not None:
                try:
                    step(batch, instruction)
                except (MemoryFault, EmulationError):
                    raise
                except Exception as error:
                    raise Unsupported(f"{instruction}: {error!r}") from error
                continue
            taken = self._taken(batch, instruction)
            target = self._target(instruction)
            if taken.all():
                if target is None:
                    return []
                batch.position = target
            elif taken.any():
                parts = [batch.select(np.flatnonzero(~taken))]
                if target is not None:
                    parts.append(batch.select(np.flatnonzero(taken)))
                    parts[-1].position = target
                return parts
        raise EmulationError(f"no end after {MAX_STEPS} instructions")

    def _taken(self, batch: Batch, instruction: Instruction) -> np.ndarray:
        """bool [C]: which blocks take a branch; their threads must agree."""
        active = batch.active(instruction)
        if active is None:
            return np.ones(batch.size, bool)
        active = batch.everywhere(active)
        some, every = np.asarray(active.any(1)), np.asarray(active.all(1))
        if (some != every).any():
            raise EmulationError(f"{instruction}: threads of a block part ways")
        return some

    def _target(self, instruction: Instruction) -> int | None:
        if instruction.name != "bra":
            return None
        return self.program.labels[instruction.operands[0]]


def _blocks(
    grid: np.ndarray, chosen: tuple[tuple[int, int, int], ...] | None
) -> np.ndarray:
    """int [blocks, 3]: x, y, z of the chosen blocks of a grid, x fastest."""
    if chosen is not None:
        return np.array(chosen)
    return np.array(list(np.ndindex(*grid[::-1]))).reshape(-1, 3)[:, ::-1]


def _uniform(column: np.ndarray) -> np.ndarray:
    """A parameter of each block as [C, 1], or [1, 1] where all agree."""
    return column[: 1 if (column == column[0]).all() else None, None]


def _narrowest_shared_store(program: Program) -> int:
    """Bytes of the narrowest write to shared memory, at most 4."""
    narrowest = 4
    for instruction in program.instructions:
        if instruction.opcode.startswith("st.shared"):
            count = instruction.operands[1].count(",") + 1
            size = int(instruction.modifiers[-1].lstrip("bfsu")) // 8
            narrowest = min(narrowest, size * count)
    return narrowest
