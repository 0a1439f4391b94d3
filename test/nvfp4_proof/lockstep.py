"""Many programs at once in Triton's interpreter.

Triton interprets one program after the other, and nearly all of the time goes into
Python. Here the data of every value has one more dimension in front, for programs:
[C, *shape], or [1, *shape] where all agree. Types keep the shape of one program, so
kernels and Triton's own rules do not notice.

Where programs part, at a branch or a loop bound that differs, each part starts again
from the beginning. What it loaded, stored, exchanged and multiplied until there comes
from a log, so nothing happens twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as stock
from triton.runtime.interpreter import TensorHandle as Handle

from sgl_kernel_nvfp4.launch import Launch

Array = np.ndarray

ELEMENTS_AT_ONCE = 1 << 20
"""Elements of the greatest operand of all programs that run at once."""


class Part(Exception):
    """Programs disagree about a scalar on which the flow of control depends."""

    def __init__(self, values: Array) -> None:
        super().__init__("programs part")
        self.values = values


def rows(array: Array | None, chosen: Array) -> Array | None:
    """The chosen programs of an array, unless it is the same for all."""
    return array if array is None or len(array) == 1 else array[chosen]


def together(*arrays: Array) -> list[Array]:
    """The arrays with one shape, each contiguous."""
    return [np.ascontiguousarray(array) for array in np.broadcast_arrays(*arrays)]


class Programs:
    """Some programs that take the same way, and the log of what they did.

    Methods named create_* take the place of those of Triton's interpreter.
    """

    def __init__(self, ids: Array, counts: Array, log: list[Array | None]) -> None:
        self.ids = ids  # int32 [C, 3]
        self.counts = counts  # int32 [C, 3]: programs along each axis of the grid
        self.log = log
        self.position = 0

    def once(self, action: Callable[[], Array | None]) -> Array | None:
        """Do ``action`` unless the log says that these programs did it already."""
        if self.position == len(self.log):
            self.log.append(action())
        self.position += 1
        return self.log[self.position - 1]

    def agreed(self, values: Array) -> Any:
        """The one value of a scalar; raises Part where programs disagree."""
        if (values != values[0]).any():
            raise Part(np.broadcast_to(values, len(self.ids)))
        return values[0]

    def create_get_program_id(self, axis: int) -> Handle:
        return Handle(self.ids[:, axis], tl.int32)

    def create_get_num_programs(self, axis: int) -> Handle:
        return Handle(self.counts[:, axis], tl.int32)

    def create_make_range(self, result_type: tl.dtype, start: int, stop: int) -> Handle:
        return Handle(np.arange(start, stop, dtype=np.int32)[None], tl.int32)

    def create_splat(self, result_type: tl.dtype, value: Handle) -> Handle:
        shape = result_type.shape
        data = value.data.reshape(-1, *[1] * len(shape))
        return Handle(np.broadcast_to(data, (len(data), *shape)), value.dtype.scalar)

    def create_broadcast(self, value: Handle, shape: Sequence[int]) -> Handle:
        data = np.broadcast_to(value.data, (len(value.data), *shape))
        return Handle(data, value.dtype.scalar)

    def create_expand_dims(self, value: Handle, axis: int) -> Handle:
        return Handle(np.expand_dims(value.data, axis + 1), value.dtype.scalar)

    def create_reshape(
        self, value: Handle, shape: Sequence[int], allow_reorder: bool
    ) -> Handle:
        data = value.data.reshape(len(value.data), *shape)
        return Handle(data, value.dtype.scalar)

    def create_trans(self, value: Handle, order: Sequence[int]) -> Handle:
        data = value.data.transpose(0, *(axis + 1 for axis in order))
        return Handle(data, value.dtype.scalar)

    def create_load(self, pointers: Handle, *hints: Any) -> Handle:
        return self.create_masked_load(pointers, Handle(np.True_, tl.int1), None)

    def create_masked_load(
        self, pointers: Handle, mask: Handle, other: Handle | None, *hints: Any
    ) -> Handle:
        kind = pointers.get_element_ty()
        stored = stock._get_np_dtype(kind)
        default = np.zeros(1, stored) if other is None else other.data
        data = self.once(
            lambda: stock._interpreter.load(
                *together(pointers.data, mask.data, default), stored
            )
        )
        return Handle(data, kind)

    def create_store(self, pointers: Handle, value: Handle, *hints: Any) -> None:
        self.create_masked_store(pointers, value, Handle(np.True_, tl.int1))

    def create_masked_store(
        self, pointers: Handle, value: Handle, mask: Handle, *hints: Any
    ) -> None:
        self.once(
            lambda: stock._interpreter.store(
                *together(pointers.data, value.data, mask.data)
            )
        )

    def create_atomic_rmw(
        self,
        operation: Any,
        pointers: Handle,
        value: Handle,
        mask: Handle,
        semantics: Any,
        scope: Any,
    ) -> Handle:
        """One after the other, in the order of the programs."""
        builder = stock.InterpreterBuilder
        each = np.zeros((len(self.ids), *[1] * (pointers.data.ndim - 1)), np.bool_)
        _, *operands = together(each, pointers.data, value.data, mask.data)
        old = self.once(
            lambda: stock._interpreter.atomic_rmw(
                builder.ir_rmw_op_to_interpreter_rmw_op[operation],
                *operands,
                builder.ir_sem_to_interpreter_sem[semantics],
            )
        )
        return Handle(old, value.dtype.scalar)


OVERRIDES = [name for name in vars(Programs) if name.startswith("create_")]


class Reduce(stock.ReduceOps):
    """Reductions known to Triton's interpreter, behind the dimension of programs."""

    def __init__(self, axis: int, combine: Any, keep_dims: bool) -> None:
        super().__init__(axis + 1, combine, keep_dims)

    def check_tensor(self, values: Sequence[tl.tensor]) -> None:
        for value in values:
            self.check_axis(value.handle.data.shape, self.axis)

    def to_tensor(self, data: Array, dtype: tl.dtype) -> tl.tensor:
        data = data.astype(stock._get_np_dtype(dtype))
        shape = list(data.shape[1:])
        kind = tl.block_type(dtype, shape) if shape else dtype
        return tl.tensor(Handle(data, dtype.scalar), kind)

    def generic_reduce(self, values: Sequence[tl.tensor]) -> None:
        raise NotImplementedError(f"reduction by {self.combine_fn} is not interpreted")


def _reduce(value, axis, combine_fn, keep_dims=False, **hints):
    return Reduce(axis, combine_fn, keep_dims).apply(value)


def _transposed(value: tl.tensor) -> tl.tensor:
    *lead, one, other = value.type.shape
    kind = tl.block_type(value.dtype, [*lead, other, one])
    return tl.tensor(Handle(value.handle.data.swapaxes(-1, -2), value.dtype), kind)


def _argument(values: list[Any], launch: Array) -> Any:
    """An argument for programs of several launches, which ``launch`` numbers [C]."""
    converted = [stock._implicit_cvt(value) for value in values]
    if not isinstance(converted[0], tl.tensor):
        if any(value != values[0] for value in values):
            raise NotImplementedError(f"launches differ in a constant: {values}")
        return values[0]
    kinds = {str(value.type) for value in converted}
    if len(kinds) > 1:
        raise NotImplementedError(f"launches differ in a type: {sorted(kinds)}")
    data = np.concatenate([value.handle.data for value in converted])
    data = data[:1] if (data == data[0]).all() else data[launch]
    return tl.tensor(Handle(data, converted[0].handle.dtype), converted[0].type)


def _programs_at_once(launch: Launch) -> int:
    blocks = sorted(v for name, v in launch.constants.items() if "BLOCK" in name)
    return max(ELEMENTS_AT_ONCE // math.prod(blocks[-2:]), 1)


def run(
    function: Callable[..., None],
    launches: Sequence[Launch],
    scope: stock._LangPatchScope,
) -> None:
    """Run the programs of launches that differ in their arguments only.

    function: the kernel as the interpreter rewrites it. scope: notes what is patched.
    """
    grids = [(*launch.grid, 1, 1)[:3] for launch in launches]
    ids = np.array([at for grid in grids for at in np.ndindex(*grid)], np.int32)
    launch = np.repeat(np.arange(len(launches)), [math.prod(grid) for grid in grids])
    counts = np.array(grids, np.int32)[launch]
    scope.set_attr(tl, "reduce", _reduce)
    scope.set_attr(tl.core, "reduce", _reduce)
    scope.set_attr(tl.tensor, "T", property(_transposed))
    size = _programs_at_once(launches[0])
    for start in range(0, len(ids), size):
        waiting: list[tuple[Array, list[Array | None]]] = [
            (np.arange(start, min(start + size, len(ids))), [])
        ]
        while waiting:
            chosen, log = waiting.pop(0)
            programs = Programs(ids[chosen], counts[chosen], log)
            _install(programs, scope)
            arguments = {
                name: _argument(
                    [other.arguments[name] for other in launches], launch[chosen]
                )
                for name in launches[0].arguments
            }
            try:
                function(**arguments, **launches[0].constants)
            except Part as part:
                for value in np.unique(part.values):
                    mine = np.flatnonzero(part.values == value)
                    past = [rows(entry, mine) for entry in log]
                    waiting.append((chosen[mine], past))


def _install(programs: Programs, scope: stock._LangPatchScope) -> None:
    for name in OVERRIDES:
        scope.set_attr(stock.InterpreterBuilder, name, getattr(programs, name))

    def as_bool(value: tl.tensor) -> bool:
        # As in Triton's interpreter: only scalars are decided, a block counts as there.
        return value.type.is_block() or bool(programs.agreed(value.handle.data))

    def as_index(value: tl.tensor) -> int:
        return int(programs.agreed(value.handle.data))

    scope.set_attr(tl.tensor, "__bool__", as_bool)
    scope.set_attr(tl.tensor, "__index__", as_index)
