"""Integer, logic and floating-point arithmetic, comparison and selection."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from nvfp4_proof.emulator.batch import UNSIGNED, Batch, Unsupported
from nvfp4_proof.emulator.numbers import DECODE, ENCODE
from nvfp4_proof.emulator.parse import Instruction
from nvfp4_proof.emulator.registry import executes

Array = np.ndarray

INTEGER_KINDS = {f"{sign}{width}" for sign in "usb" for width in (8, 16, 32, 64)}
FLOAT_KINDS = {"f32", "f16", "bf16"}


def truncated_divide(x: Array, y: Array) -> Array:
    quotient = np.abs(x) // np.abs(y)
    return np.where((x < 0) != (y < 0), -quotient, quotient).astype(x.dtype)


def exact(function: np.ufunc) -> Callable[..., Array]:
    """``function`` with its own number of operands: one more would be its output."""

    def call(*operands: Array) -> Array:
        if len(operands) != function.nin:
            raise Unsupported(f"{function.__name__} of {len(operands)} operands")
        return function(*operands)

    return call


INTEGER: dict[str, Callable[..., Array]] = {
    "add": exact(np.add),
    "sub": exact(np.subtract),
    "mul": exact(np.multiply),
    "mad": lambda x, y, z: x * y + z,
    "and": exact(np.bitwise_and),
    "or": exact(np.bitwise_or),
    "xor": exact(np.bitwise_xor),
    "not": exact(np.bitwise_not),
    "neg": exact(np.negative),
    "abs": exact(np.abs),
    "min": exact(np.minimum),
    "max": exact(np.maximum),
    "div": truncated_divide,
    "rem": lambda x, y: x - truncated_divide(x, y) * y,
    "popc": lambda x: np.bitwise_count(x).astype(np.uint32),
}


def fused_multiply_add(x: Array, y: Array, z: Array) -> Array:
    # The product of two float32 is exact in float64.
    return (x.astype(np.float64) * y + z).astype(np.float32)


FLOAT: dict[str, Callable[..., Array]] = {
    "add": exact(np.add),
    "sub": exact(np.subtract),
    "mul": exact(np.multiply),
    "div": exact(np.divide),
    "fma": fused_multiply_add,
    "abs": exact(np.abs),
    "neg": exact(np.negative),
    "min": lambda *values: functools.reduce(np.fmin, values),
    "max": lambda *values: functools.reduce(np.fmax, values),
    "ex2": exact(np.exp2),
    "rsqrt": lambda x: (1.0 / np.sqrt(x.astype(np.float64))).astype(np.float32),
    "rcp": lambda x: np.float32(1.0) / x,
}

COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "nan": lambda x, y: np.isnan(x) | np.isnan(y),
    "num": lambda x, y: ~(np.isnan(x) | np.isnan(y)),
}


def _compute(
    batch: Batch, instruction: Instruction, function: Callable[..., Array], kind: str
) -> Array:
    """Apply ``function`` to the sources as ``kind``; the result as bits of ``kind``."""
    sources = instruction.operands[1:]
    with np.errstate(all="ignore"):
        if kind in INTEGER_KINDS:
            return function(*(batch.integer(s, kind) for s in sources))
        width = 32 if kind == "f32" else 16
        values = [DECODE[kind](batch.bits(s, width)) for s in sources]
        result = function(*values)
        approximate = "approx" in instruction.opcode or "full" in instruction.opcode
        if approximate and batch.approximation:
            result = _off_by(result, batch.approximation)
        return ENCODE[kind](result)


def _off_by(values: Array, units: int) -> Array:
    """``values`` moved by some units in the last place, as an approximation may be."""
    bits = np.ascontiguousarray(values, np.float32).view(np.int32)
    moved = (bits + np.int32(units)).view(np.float32)
    return np.where(np.isfinite(values) & (values != 0), moved, values)


@executes(
    "add", "sub", "mul", "mad", "div", "rem", "fma", "abs", "neg", "min", "max", "popc"
)
@executes("ex2", "rsqrt", "rcp")
def arithmetic(batch: Batch, instruction: Instruction) -> None:
    kind = instruction.modifiers[-1]
    if "wide" in instruction.modifiers:
        return _wide(batch, instruction, kind)
    if "hi" in instruction.modifiers:
        return _high_half(batch, instruction, kind)
    if kind.endswith("x2"):
        return _packed(batch, instruction, kind)
    if instruction.modifiers[-2:-1] == ["f32"] and kind in ("bf16", "f16"):
        return _mixed(batch, instruction, kind)
    table = INTEGER if kind in INTEGER_KINDS else FLOAT
    result = _compute(batch, instruction, table[instruction.name], kind)
    batch.write(instruction.operands[0], result, batch.active(instruction))
    return None


def _wide(batch: Batch, instruction: Instruction, kind: str) -> None:
    """Product twice as wide as its factors, for mad plus a wide third operand."""
    wide = f"{kind[0]}{2 * int(kind[1:])}"
    destination, x, y, *rest = instruction.operands
    kind_type = batch.integer("0", wide).dtype
    product = batch.integer(x, kind).astype(kind_type)
    with np.errstate(over="ignore"):
        product = product * batch.integer(y, kind).astype(kind_type)
        if rest:
            product = product + batch.integer(rest[0], wide)
    batch.write(destination, product, batch.active(instruction))


def _high_half(batch: Batch, instruction: Instruction, kind: str) -> None:
    """The upper 32 bits of a product of 32-bit integers."""
    if kind not in ("s32", "u32") or instruction.name != "mul":
        raise Unsupported(f"{instruction.opcode} is not emulated")
    destination, x, y = instruction.operands
    wide = np.int64 if kind == "s32" else np.uint64
    product = batch.integer(x, kind).astype(wide) * batch.integer(y, kind).astype(wide)
    result = (product >> wide(32)).astype(np.int32 if kind == "s32" else np.uint32)
    batch.write(destination, result, batch.active(instruction))


def _mixed(batch: Batch, instruction: Instruction, kind: str) -> None:
    """add.rn.f32.bf16 d, a, c: a is 16 bits wide, d and c are float32."""
    destination, x, *rest = instruction.operands
    narrow = DECODE[kind](batch.bits(x, 16))
    others = [DECODE["f32"](batch.bits(operand, 32)) for operand in rest]
    if instruction.name not in ("add", "sub") or len(others) != 1:
        raise Unsupported(f"{instruction.opcode} is not emulated")
    with np.errstate(all="ignore"):
        result = ENCODE["f32"](FLOAT[instruction.name](narrow, others[0]))
    batch.write(destination, result, batch.active(instruction))


def _packed(batch: Batch, instruction: Instruction, kind: str) -> None:
    """Two lanes in one register: f32x2, f16x2, bf16x2, s16x2, u16x2."""
    lane = kind[:-2]
    half = 32 if lane == "f32" else 16
    unsigned = UNSIGNED[half]
    destination, *sources = instruction.operands
    whole = [batch.bits(source, 2 * half) for source in sources]
    shape = np.broadcast_shapes(*(value.shape for value in whole))
    halves = [np.ascontiguousarray(np.broadcast_to(v, shape)) for v in whole]
    lanes: list[Array] = [value.view(unsigned) for value in halves]
    with np.errstate(all="ignore"):
        if lane in FLOAT_KINDS:
            result = FLOAT[instruction.name](*(DECODE[lane](v) for v in lanes))
            result = ENCODE[lane](result)
        else:
            typed = [v.view(f"i{half // 8}") if lane[0] == "s" else v for v in lanes]
            result = INTEGER[instruction.name](*typed)
    packed: Array = np.ascontiguousarray(result).view(UNSIGNED[2 * half])
    batch.write(destination, packed, batch.active(instruction))


@executes("and", "or", "xor", "not")
def logic(batch: Batch, instruction: Instruction) -> None:
    kind = instruction.modifiers[-1]
    if kind == "pred":
        values = [batch.predicate(s) for s in instruction.operands[1:]]
        result = INTEGER[instruction.name](*values)
    else:
        result = _compute(batch, instruction, INTEGER[instruction.name], kind)
    batch.write(instruction.operands[0], result, batch.active(instruction))


@executes("shl", "shr")
def shift(batch: Batch, instruction: Instruction) -> None:
    """Shifts clamp: by the width or more, the result is zero, or the sign."""
    kind = instruction.modifiers[-1]
    width = int(kind[1:])
    destination, source, amount = instruction.operands
    value = batch.integer(source, kind)
    count = batch.bits(amount, 32)
    inside = np.minimum(count, width - 1).astype(value.dtype)
    if instruction.name == "shl":
        result = np.where(count < width, value << inside, 0)
    elif kind[0] == "s":
        result = value >> inside
    else:
        result = np.where(count < width, value >> inside, 0)
    result = result.astype(value.dtype)
    batch.write(destination, result, batch.active(instruction))


@executes("bfe")
def bit_field_extract(batch: Batch, instruction: Instruction) -> None:
    kind = instruction.modifiers[-1]
    width = int(kind[1:])
    destination, source, start, length = instruction.operands
    first, count = int(start, 0), int(length, 0)
    value = batch.bits(source, width) >> UNSIGNED[width](first)
    up = width - count
    value = value << UNSIGNED[width](up)
    if kind[0] == "s":
        value = value.view(f"i{width // 8}")
    batch.write(destination, value >> value.dtype.type(up), batch.active(instruction))


@executes("lop3")
def three_input_logic(batch: Batch, instruction: Instruction) -> None:
    """Bit i of the table is the result where the inputs spell i: a is bit 2."""
    destination, *sources, table = instruction.operands
    a, b, c = (batch.bits(source, 32) for source in sources)
    result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
    for row in range(8):
        if int(table, 0) >> row & 1:
            x = a if row & 4 else ~a
            y = b if row & 2 else ~b
            z = c if row & 1 else ~c
            result |= x & y & z
    batch.write(destination, result, batch.active(instruction))


@executes("prmt")
def permute_bytes(batch: Batch, instruction: Instruction) -> None:
    """Byte i is byte (selector nibble i) & 7 of b:a; bit 3 of it asks for its sign."""
    destination, a, b, selector = instruction.operands
    low, high = (batch.bits(operand, 32).astype(np.uint64) for operand in (a, b))
    pool = low | (high << np.uint64(32))
    choice = batch.bits(selector, 32)
    result = np.zeros(np.broadcast_shapes(pool.shape, choice.shape), np.uint32)
    for number in range(4):
        nibble = (choice >> np.uint32(4 * number)) & np.uint32(15)
        place = ((nibble & np.uint32(7)) * 8).astype(np.uint64)
        byte = ((pool >> place) & np.uint64(255)).astype(np.uint32)
        sign = np.where(byte & 128, np.uint32(255), np.uint32(0))
        byte = np.where(nibble & 8, sign, byte)
        result |= byte << np.uint32(8 * number)
    batch.write(destination, result, batch.active(instruction))


@executes("setp")
def set_predicate(batch: Batch, instruction: Instruction) -> None:
    comparison, kind = instruction.modifiers[0], instruction.modifiers[-1]
    if len(instruction.modifiers) > 2 and instruction.modifiers[1] != "ftz":
        raise Unsupported(f"{instruction.opcode} is not emulated")
    destination, *sources = instruction.operands
    if kind in INTEGER_KINDS:
        values = [batch.integer(source, kind) for source in sources]
    else:
        width = 32 if kind == "f32" else 16
        values = [DECODE[kind](batch.bits(source, width)) for source in sources]
    with np.errstate(invalid="ignore"):
        result = COMPARE[comparison](*values)
    batch.write(destination, result, batch.active(instruction))


@executes("selp")
def select(batch: Batch, instruction: Instruction) -> None:
    destination, yes, no, condition = instruction.operands
    width = int(instruction.modifiers[-1].lstrip("bfsu"))
    chosen = batch.predicate(condition)
    result = np.where(chosen, batch.bits(yes, width), batch.bits(no, width))
    batch.write(destination, result, batch.active(instruction))
