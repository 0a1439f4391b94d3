"""Triton's own interpreter, repaired where it is wrong for NVFP4.

Wrong in Triton 3.8: ``dot_scaled`` reads every scale as e8m0; ``dot`` and arithmetic on
bfloat16 use the raw bits; float conversions do not round to nearest even; ``fma``
rounds twice; inline assembly is refused. It also cannot be used in a process that
compiles, and runs one program at a time, which ``lockstep`` mends.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import triton.experimental.gluon  # noqa: F401  imported late, it would see our patches
import triton.language as tl
import triton.runtime.interpreter as stock
from triton.runtime.interpreter import TensorHandle as Handle
from triton.runtime.jit import JITFunction

from nvfp4_proof import lockstep
from nvfp4_proof.emulator.numbers import (
    DECODE,
    E2M1_QUADS,
    E4M3,
    ENCODE,
    encode_e4m3,
)
from nvfp4_proof.inline_assembly import run_inline_assembly
from sgl_kernel_nvfp4.launch import Launch

NARROW = {tl.bfloat16: "bf16", tl.float16: "f16", tl.float32: "f32"}


def to_float32(data: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """float32 of an interpreter array, which keeps narrow floats as integers."""
    if dtype == tl.float8e4nv:
        return E4M3[data.view(np.uint8)]
    if dtype == tl.float64:
        return data.astype(np.float32)
    width = dtype.primitive_bitwidth // 8
    return DECODE[NARROW[dtype]](np.ascontiguousarray(data).view(f"u{width}"))


def from_float32(values: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    if dtype == tl.float8e4nv:
        return encode_e4m3(values)
    if dtype == tl.float64:
        return values.astype(np.float64)
    return ENCODE[NARROW[dtype]](values)


def _convert_float(data, source, target, rounding):
    """Round to nearest even, as the compiled casts of these kernels do."""
    return from_float32(to_float32(data, source), target).reshape(data.shape)


def _kept_as_bits(dtype: tl.dtype) -> bool:
    return dtype in (tl.bfloat16, tl.float8e4nv)


def _binary(self, left, right, operation):
    dtype = left.dtype.scalar
    if not _kept_as_bits(dtype):
        return _stock_binary(self, left, right, operation)
    values = operation(to_float32(left.data, dtype), to_float32(right.data, dtype))
    if values.dtype == np.bool_:
        return Handle(values, tl.int1)
    return Handle(from_float32(values, dtype), dtype)


def _fused_multiply_add(self, x, y, z):
    result = x.data.astype(np.float64) * y.data + z.data
    return Handle(result.astype(z.data.dtype), z.dtype.scalar)


def _dot(self, left, right, accumulator, precision, imprecise):
    if not left.dtype.is_floating():
        return _stock_dot(self, left, right, accumulator, precision, imprecise)
    product = to_float32(left.data, left.dtype) @ to_float32(right.data, right.dtype)
    return Handle(product + accumulator.data, accumulator.dtype.scalar)


def _scaled_operand(value, scale, fmt, k_axis: int) -> np.ndarray:
    """float32 values of a dot_scaled operand, K in the last axis."""
    if fmt != stock._ir.ScaleDotElemTypeTY.E2M1:
        raise NotImplementedError(f"dot_scaled of {fmt} is not interpreted")
    packed = np.moveaxis(value.data, k_axis, -1)
    pairs = np.ascontiguousarray(packed).view(np.uint16)
    values = np.take(E2M1_QUADS, pairs, axis=0).reshape(*packed.shape[:-1], -1)
    if scale.dtype != tl.float8e4nv:
        raise TypeError(
            f"NVFP4 scales must be float8e4nv; {scale.dtype} compiles to e8m0 scales"
        )
    factors = to_float32(scale.data, scale.dtype)
    return values * np.repeat(factors, values.shape[-1] // factors.shape[-1], axis=-1)


def _dot_scaled(
    self, left, left_scale, left_format, right, right_scale, right_format, *rest
):
    *_, accumulator = rest
    a = _scaled_operand(left, left_scale, left_format, -1)
    b = _scaled_operand(right, right_scale, right_format, -2)
    return Handle(a @ b.swapaxes(-1, -2) + accumulator.data, tl.float32)


class _Results(list):
    """What the builder returns for inline assembly."""

    def get_result(self, number: int) -> Handle:
        return self[number]


def _inline_assembly(self, text, constraints, values, result_types, is_pure, pack):
    arrays = list(np.broadcast_arrays(*(value.data for value in values)))
    kinds = [stock._get_np_dtype(kind) for kind in result_types]
    arrays = run_inline_assembly(text, arrays, kinds, pack)
    return _Results(
        Handle(a, kind.scalar) for a, kind in zip(arrays, result_types, strict=True)
    )


_stock_binary = stock.InterpreterBuilder.binary_op
_stock_dot = stock.InterpreterBuilder.create_dot

REPAIRS: dict[str, Any] = {
    "binary_op": _binary,
    "create_fma": _fused_multiply_add,
    "create_dot": _dot,
    "create_dot_scaled": _dot_scaled,
    "create_inline_asm": _inline_assembly,
}


class _Interpreted(stock.InterpretedFunction):
    """A device function; ``interpret`` has already patched the language."""

    def __call__(self, *args, **kwargs):
        return self.rewrite()(*args, **kwargs)


_known: dict[JITFunction, _Interpreted] = {}


def _interpreted(function: JITFunction) -> _Interpreted:
    """``function`` for the interpreter, and so all that its module can call."""
    if function in _known:
        return _known[function]
    source = function.fn
    scope = dict(source.__globals__)
    copy = types.FunctionType(
        source.__code__, scope, source.__name__, source.__defaults__
    )
    copy.__annotations__ = source.__annotations__
    copy.__kwdefaults__ = source.__kwdefaults__
    result = _known[function] = _Interpreted(copy)
    for name, value in list(scope.items()):
        if isinstance(value, JITFunction):
            scope[name] = _interpreted(value)
    return result


@contextlib.contextmanager
def _repaired_interpreter() -> Iterator[stock._LangPatchScope]:
    """Patch Triton's language and interpreter, and undo all of it.

    What is set through the scope that this yields is undone first.
    """
    scope = stock._LangPatchScope()
    for module in (tl, tl.standard, tl.math, tl.core):
        for name, value in list(vars(module).items()):
            if isinstance(value, JITFunction):
                scope.set_attr(module, name, _interpreted(value))
    for name, value in REPAIRS.items():
        scope.set_attr(stock.InterpreterBuilder, name, value)
    scope.set_attr(stock, "_convert_float", _convert_float)
    visible = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    language = stock._patch_lang(visible)
    programs = stock._LangPatchScope()
    try:
        yield programs
    finally:
        programs.restore()
        language.restore()
        scope.restore()


def interpret(*launches: Launch) -> None:
    """Run launches in place on CPU tensors with the repaired interpreter.

    They must differ in their arguments only: the same kernel and constants.
    """
    with _repaired_interpreter() as scope:
        kernel = _interpreted(launches[0].kernel)
        lockstep.run(kernel.rewrite(), launches, scope)
