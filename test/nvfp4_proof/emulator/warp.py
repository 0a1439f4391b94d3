"""Instructions in which the 32 threads of a warp work together.

Fragment layouts are those of the PTX ISA, "Matrix fragments for mma". With lane =
4 * group + member, an A register holds row group (+ 8 for odd registers) and the
columns of member; a B register holds column group and the rows of member.
"""

from __future__ import annotations

import numpy as np

from nvfp4_proof.emulator.batch import Batch, Unsupported, vector
from nvfp4_proof.emulator.numbers import DECODE, E2M1_QUADS, E4M3, ENCODE
from nvfp4_proof.emulator.parse import Instruction
from nvfp4_proof.emulator.registry import executes
from nvfp4_proof.emulator.transfer import address

Array = np.ndarray

LANE = np.arange(32)


@executes("shfl.sync")
def shuffle(batch: Batch, instruction: Instruction) -> None:
    mode = instruction.modifiers[1]
    destination, source, amount, bounds, _ = instruction.operands
    if mode not in ("bfly", "idx") or int(bounds, 0) != 31:
        raise Unsupported(f"{instruction} is not emulated")
    values = batch.everywhere(batch.bits(source, 32))
    thread = np.arange(batch.program.threads)
    lanes = batch.everywhere(batch.bits(amount, 32)).astype(np.int64)
    if mode == "bfly":
        other = (thread & ~31) | ((thread & 31) ^ lanes)
    else:
        other = (thread & ~31) | (lanes & 31)
    result = np.take_along_axis(values, other, axis=1)
    batch.write(destination.split("|")[0], result, batch.active(instruction))


def _row_addresses(batch: Batch, operand: str, matrices: int) -> tuple[Array, Array]:
    """Addresses of matrix rows, and the threads that hold one: 8 lanes a matrix."""
    addresses = address(batch, operand, 32)
    holds = batch.everywhere(
        (np.arange(batch.program.threads) % 32 < 8 * matrices)[None]
    )
    return addresses, holds


@executes("ldmatrix.sync.aligned.m8n8")
def load_matrices(batch: Batch, instruction: Instruction) -> None:
    """8 x 8 matrices of 16 bits: a lane gets two neighbours of row lane // 4.

    With .trans it gets two neighbours of column lane // 4.
    """
    destinations = vector(instruction.operands[0])
    count = len(destinations)
    addresses, holds = _row_addresses(batch, instruction.operands[1], count)
    data = batch.shared.load(addresses, 16, holds, str(instruction))
    rows = data.view(np.uint16).reshape(batch.size, -1, 32, 8)[:, :, : 8 * count]
    matrices = rows.reshape(batch.size, -1, count, 8, 8)
    if "trans" in instruction.modifiers:
        matrices = matrices.swapaxes(-1, -2)
    pairs = np.ascontiguousarray(matrices).view(np.uint32)  # [C, warps, count, 8, 4]
    for number, register in enumerate(destinations):
        value = np.ascontiguousarray(pairs[:, :, number]).reshape(batch.shape)
        batch.write(register, value, batch.active(instruction))


@executes("stmatrix.sync.aligned.m8n8")
def store_matrices(batch: Batch, instruction: Instruction) -> None:
    sources = vector(instruction.operands[1])
    count = len(sources)
    pairs = np.stack([batch.everywhere(batch.bits(s, 32)) for s in sources], axis=1)
    matrices = pairs.reshape(batch.size, count, -1, 8, 4).swapaxes(1, 2)
    matrices = np.ascontiguousarray(matrices).view(np.uint16)  # [C, warps, count, 8, 8]
    if "trans" in instruction.modifiers:
        matrices = np.ascontiguousarray(matrices.swapaxes(-1, -2))
    warps = batch.program.threads // 32
    rows = np.zeros((batch.size, warps, 32, 8), np.uint16)
    rows[:, :, : 8 * count] = matrices.reshape(batch.size, warps, 8 * count, 8)
    addresses, holds = _row_addresses(batch, instruction.operands[0], count)
    data = rows.reshape(*batch.shape, 8).view(np.uint8)
    batch.shared.store(addresses, data, holds, str(instruction))


def _fragments(batch: Batch, registers: list[str]) -> Array:
    """uint32 [C, warps, group 8, member 4, registers]."""
    values = [batch.everywhere(batch.bits(register, 32)) for register in registers]
    return np.stack(values, axis=-1).reshape(batch.size, -1, 8, 4, len(registers))


def _elements(fragments: Array, kind: str) -> Array:
    """float32 [..., registers, elements]: what each register holds, low bits first."""
    if kind == "e2m1":
        pairs = fragments[..., None].view(np.uint16)
        return np.take(E2M1_QUADS, pairs, axis=0).reshape(*fragments.shape, 8)
    return DECODE[kind](fragments[..., None].view(np.uint16))


def matrix_a(fragments: Array, kind: str) -> Array:
    """float32 [C, warps, 16, K] of the four registers of A."""
    values = _elements(fragments, kind)
    blocks, warps, group, member, _, elements = values.shape
    values = values.reshape(blocks, warps, group, member, 2, 2, elements)
    # [.., group, member, k half, row half, element] to [.., row half, group, k half,
    # ...]
    values = values.transpose(0, 1, 5, 2, 4, 3, 6)
    return values.reshape(blocks, warps, 16, 8 * elements)


def matrix_b(fragments: Array, kind: str) -> Array:
    """float32 [C, warps, 8 columns, K] of the two registers of B."""
    values = _elements(fragments, kind)
    blocks, warps, _group, _member, _, elements = values.shape
    values = values.transpose(0, 1, 2, 4, 3, 5)
    return values.reshape(blocks, warps, 8, 8 * elements)


def _scales(batch: Batch, register: str, ids: str, rows: int) -> Array:
    """float32 [C, warps, rows, 4]: the scales of four blocks along K of each row.

    A's rows r and r + 8 take theirs from members 2 * id and 2 * id + 1 of group r; B's
    columns from member id.
    """
    byte, thread = (int(part, 0) for part in vector(ids))
    if byte:
        raise Unsupported("scale_vec::4X takes byte id 0")
    value = np.ascontiguousarray(batch.everywhere(batch.bits(register, 32)))
    value = value.reshape(batch.size, -1, 8, 4)
    if rows == 16:
        chosen = value[..., 2 * thread : 2 * thread + 2].swapaxes(-1, -2)
    else:
        chosen = value[..., thread]
    chosen = np.ascontiguousarray(chosen).reshape(batch.size, -1, rows, 1)
    return E4M3[chosen.view(np.uint8)]


@executes("mma.sync.aligned")
def multiply(batch: Batch, instruction: Instruction) -> None:
    """D = A @ B + C in float32; the order of the sum is not the device's."""
    shape, kinds = instruction.modifiers[2], instruction.modifiers
    destinations, a, b, c = (vector(operand) for operand in instruction.operands[:4])
    if shape == "m16n8k64" and "scale_vec::4X" in kinds and kinds[-1] == "ue4m3":
        kind = "e2m1"
    elif shape == "m16n8k16" and kinds[-4:-1] in (["f32"] + [t] * 2 for t in DECODE):
        kind = kinds[-2]
    else:
        raise Unsupported(f"{instruction.opcode} is not emulated")
    a_scale: tuple[str, ...] = ()
    b_scale: tuple[str, ...] = ()
    if kind == "e2m1":
        _, _, _, _, *scales = instruction.operands
        a_scale, b_scale = tuple(scales[:2]), tuple(scales[2:])
    left = _operand(batch, a, a_scale, kind, 16)
    right = _operand(batch, b, b_scale, kind, 8)
    with np.errstate(all="ignore"):
        product = left @ right.swapaxes(-1, -2)
    # [C, warps, 16, 8] to [C, warps, group, member, row half, element]
    product = product.reshape(batch.size, -1, 2, 8, 4, 2).transpose(0, 1, 3, 4, 2, 5)
    active = batch.active(instruction)
    for number, (register, addend) in enumerate(zip(destinations, c, strict=True)):
        value = product[..., number >> 1, number & 1].reshape(batch.shape)
        with np.errstate(all="ignore"):
            value = value + DECODE["f32"](batch.bits(addend, 32))
        batch.write(register, ENCODE["f32"](value), active)


def _operand(
    batch: Batch, registers: list[str], scale: tuple[str, ...], kind: str, rows: int
) -> Array:
    """float32 [C, warps, rows, K] of A (16 rows) or B (8); several products share one.

    scale: the register of the block scales and the thread that holds them, if any.
    """

    def decode() -> Array:
        matrix = matrix_a if rows == 16 else matrix_b
        values = matrix(_fragments(batch, registers), kind)
        if not scale:
            return values
        register, thread = scale
        return _scaled(values, _scales(batch, register, thread, rows))

    return batch.remembered((rows, kind, *registers, *scale), decode)


def _scaled(values: Array, scales: Array) -> Array:
    blocks = values.reshape(*values.shape[:-1], scales.shape[-1], -1)
    return (blocks * scales[..., None]).reshape(values.shape)
