"""Compile a launch for a device that is not here."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from sgl_kernel_nvfp4.launch import Launch

POINTER_TYPES = {
    torch.uint8: "*u8",
    torch.float8_e4m3fn: "*fp8e4nv",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


@dataclass(frozen=True)
class Compiled:
    """What the static gate and the emulator need of a compiled kernel."""

    name: str
    ptx: str
    cubin: bytes
    shared_bytes: int
    num_warps: int
    arch: int


def argument_type(value: torch.Tensor | int | float) -> str:
    if isinstance(value, torch.Tensor):
        return POINTER_TYPES[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


def compile_launch(launch: Launch, arch: int = 120) -> Compiled:
    """Compile ``launch`` with the ptxas that Triton bundles.

    Tensors count as 16-byte aligned and integers as unknown, as they do at run time:
    the kernels exclude every integer from specialisation.
    """
    types = tuple((n, argument_type(v)) for n, v in launch.arguments.items())
    constants = tuple(launch.constants.items())
    return _compile(
        launch.kernel, types, constants, launch.num_warps, launch.num_stages, arch
    )


@functools.cache
def _compile(
    kernel: Any,
    types: tuple[tuple[str, str], ...],
    constants: tuple[tuple[str, Any], ...],
    num_warps: int,
    num_stages: int,
    arch: int,
) -> Compiled:
    names = list(kernel.arg_names)
    by_name = dict(types) | {name: "constexpr" for name, _ in constants}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise ValueError(f"{kernel.__name__}: no argument for {missing}")
    signature = {name: by_name[name] for name in names}
    attributes = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(names)
        if signature[name].startswith("*")
    }
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants},
        attrs=attributes,
    )
    built = triton.compile(
        source,
        target=GPUTarget("cuda", arch, 32),
        options={"num_warps": num_warps, "num_stages": num_stages},
    )
    return Compiled(
        name=kernel.__name__,
        ptx=built.asm["ptx"],
        cubin=built.asm["cubin"],
        shared_bytes=built.metadata.shared,
        num_warps=num_warps,
        arch=arch,
    )
