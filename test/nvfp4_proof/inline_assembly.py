"""Run the inline PTX of a kernel on arrays, with the emulator's own instructions."""

from __future__ import annotations

import re

import numpy as np

from nvfp4_proof.emulator import arithmetic, conversion
from nvfp4_proof.emulator.batch import UNSIGNED, Batch
from nvfp4_proof.emulator.memory import GlobalMemory, SharedMemory
from nvfp4_proof.emulator.parse import parse
from nvfp4_proof.emulator.registry import executor

EXECUTOR_MODULES = (arithmetic, conversion)


def _registers(value: np.ndarray, pack: int) -> list[np.ndarray]:
    """[1, groups] uint32 registers that hold ``pack`` neighbours of a flat array."""
    packed = np.ascontiguousarray(value).reshape(-1, pack)
    words = packed.view(np.uint8).reshape(len(packed), -1)
    words = np.pad(words, ((0, 0), (0, -words.shape[1] % 4)))
    return list(np.ascontiguousarray(words).view(np.uint32).T[:, None, :].copy())


def run_inline_assembly(
    text: str, inputs: list[np.ndarray], outputs: list[np.dtype], pack: int
) -> list[np.ndarray]:
    """Results of ``tl.inline_asm_elementwise`` for arrays of one shape.

    Registers $0, $1 ... are 32 bits wide: the results first, then the inputs, each
    taking as many as ``pack`` of its elements fill.
    """
    arguments = [register for value in inputs for register in _registers(value, pack)]
    counts = [max(pack * dtype.itemsize // 4, 1) for dtype in outputs]
    total = sum(counts) + len(arguments)
    groups = inputs[0].size // pack
    body = re.sub(r"\$(\d+)", r"%a\1", text)
    program = parse(
        f".visible .entry asm()\n.reqntid {groups}\n{{ .reg .b32 %a<{total}>; {body} }}"
    )
    batch = Batch(
        program,
        GlobalMemory(),
        [],
        np.zeros((1, 3), np.int64),
        np.ones((1, 3), np.int64),
        SharedMemory(1, 0, 4, check_races=False),
        late_copies=False,
        approximation=0,
    )
    for number, register in enumerate(arguments, sum(counts)):
        batch.registers[f"%a{number}"] = register
    for instruction in program.instructions:
        executor(instruction)(batch, instruction)
    results, first = [], 0
    for dtype, count in zip(outputs, counts, strict=True):
        words = [
            batch.everywhere(batch.bits(f"%a{number}", 32))[0]
            for number in range(first, first + count)
        ]
        raw = np.stack(words, axis=-1).view(np.uint8)[:, : pack * dtype.itemsize]
        flat = np.ascontiguousarray(raw).view(UNSIGNED[8 * dtype.itemsize]).view(dtype)
        results.append(flat.reshape(inputs[0].shape))
        first += count
    return results
