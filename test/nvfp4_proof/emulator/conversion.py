"""cvt and mov."""

from __future__ import annotations

import numpy as np

from nvfp4_proof.emulator.arithmetic import FLOAT_KINDS, INTEGER_KINDS
from nvfp4_proof.emulator.batch import (
    SIGNED,
    UNSIGNED,
    Batch,
    Unsupported,
    vector,
)
from nvfp4_proof.emulator.numbers import (
    DECODE,
    E2M1_PAIRS,
    E4M3,
    ENCODE,
    encode_e2m1,
    encode_e4m3,
)
from nvfp4_proof.emulator.parse import Instruction
from nvfp4_proof.emulator.registry import executes

Array = np.ndarray


@executes("cvt")
def convert(batch: Batch, instruction: Instruction) -> None:
    to, source = instruction.modifiers[-2:]
    if to.endswith("x2") or source.endswith("x2"):
        result = _convert_pair(batch, instruction, to, source)
    elif to in FLOAT_KINDS and source in FLOAT_KINDS:
        result = ENCODE[to](_decode(batch, instruction.operands[1], source))
    elif to in FLOAT_KINDS and source in INTEGER_KINDS:
        value = batch.integer(instruction.operands[1], source)
        result = ENCODE[to](value.astype(np.float32))
    elif to in INTEGER_KINDS and source in INTEGER_KINDS:
        width = int(to[1:])
        value = batch.integer(instruction.operands[1], source)
        # Narrower results are widened to the register by the sign of the result type.
        result = value.astype(SIGNED[width] if to[0] == "s" else UNSIGNED[width])
    else:
        raise Unsupported(f"{instruction.opcode} is not emulated")
    batch.write(instruction.operands[0], result, batch.active(instruction))


def _decode(batch: Batch, operand: str, kind: str) -> Array:
    return DECODE[kind](batch.bits(operand, 32 if kind == "f32" else 16))


def _convert_pair(
    batch: Batch, instruction: Instruction, to: str, source: str
) -> Array:
    """Conversions of two values; the first source is the upper half of the result."""
    sources = instruction.operands[1:]
    if source == "f32":
        high, low = (DECODE["f32"](batch.bits(operand, 32)) for operand in sources)
        high, low = np.broadcast_arrays(high, low)
        if to == "e2m1x2":
            return (encode_e2m1(high) << 4) | encode_e2m1(low)
        if to == "e4m3x2":
            return (encode_e4m3(high).astype(np.uint16) << 8) | encode_e4m3(low)
        encode = ENCODE[to[:-2]]
        return (encode(high).astype(np.uint32) << np.uint32(16)) | encode(low)
    if to == "f16x2" and source in ("e2m1x2", "e4m3x2"):
        if source == "e2m1x2":
            values = E2M1_PAIRS[batch.bits(sources[0], 8)]
        else:
            raw = batch.bits(sources[0], 16)
            values = np.stack([E4M3[raw & 255], E4M3[raw >> 8]], axis=-1)
        return ENCODE["f16"](values).view(np.uint32)[..., 0]
    raise Unsupported(f"{instruction.opcode} is not emulated")


@executes("mov")
def move(batch: Batch, instruction: Instruction) -> None:
    """Copy, or pack and unpack a vector of registers, the first in the low bits."""
    kind = instruction.modifiers[-1]
    width = 1 if kind == "pred" else int(kind.lstrip("bfsu"))
    destinations = vector(instruction.operands[0])
    sources = vector(instruction.operands[1])
    active = batch.active(instruction)
    if len(destinations) > 1:
        part = width // len(destinations)
        value = batch.bits(sources[0], width)
        for number, register in enumerate(destinations):
            piece = (value >> UNSIGNED[width](part * number)).astype(UNSIGNED[part])
            batch.write(register, piece, active)
        return
    part = width // len(sources)
    value = batch.bits(sources[0], part).astype(UNSIGNED[width])
    for number, register in enumerate(sources[1:], 1):
        piece = batch.bits(register, part).astype(UNSIGNED[width])
        value = value | (piece << UNSIGNED[width](part * number))
    batch.write(destinations[0], value, active)
