"""What the repairs of Triton's interpreter repair."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from nvfp4_proof.compiler import compile_launch
from nvfp4_proof.inline_assembly import run_inline_assembly
from nvfp4_proof.interpreter import interpret
from sgl_kernel_nvfp4.launch import Launch


@triton.jit
def cast(x_ptr, out_ptr, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    value = tl.load(x_ptr + index).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + index, value)


@triton.jit
def square(x_ptr, out_ptr, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    value = tl.load(x_ptr + index)
    tl.store(out_ptr + index, value * value)


@triton.jit
def product(x_ptr, y_ptr, out_ptr, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    value = tl.dot(tl.load(x_ptr + index), tl.load(y_ptr + index).T)
    tl.store(out_ptr + index, value)


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_casts_round_to_nearest_even(dtype):
    x, out = random(1024) * 20, torch.empty(1024).to(dtype)
    interpret(Launch(cast, (1,), {"x_ptr": x, "out_ptr": out}, {"SIZE": 1024}))
    assert torch.equal(out.float(), x.to(dtype).float())


def test_arithmetic_on_bfloat16_is_not_on_its_bits():
    x = random(256, dtype=torch.bfloat16)
    out = torch.empty_like(x)
    interpret(Launch(square, (1,), {"x_ptr": x, "out_ptr": out}, {"SIZE": 256}))
    assert torch.equal(out, x * x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dot_multiplies_values(dtype):
    x, y, out = (
        random(16, 16, dtype=dtype),
        random(16, 16, dtype=dtype),
        torch.empty(16, 16),
    )
    tensors = {"x_ptr": x, "y_ptr": y, "out_ptr": out}
    interpret(Launch(product, (1,), tensors, {"SIZE": 16}))
    assert torch.allclose(out, x.float() @ y.float().T, rtol=1e-5, atol=1e-5)


def test_inline_assembly_runs_on_packed_elements():
    text = "{ .reg .b32 t; add.s32 t, $2, 1; mov.b32 $0, t; mov.b32 $1, $2; }"
    first, second = run_inline_assembly(
        text, [np.arange(8, dtype=np.uint8)], [np.dtype(np.uint8)] * 2, pack=4
    )
    assert first.tolist() == [1, 1, 2, 3, 5, 5, 6, 7]
    assert second.tolist() == list(range(8))


def test_a_process_that_interprets_can_still_compile():
    x = random(256)
    launch = Launch(square, (1,), {"x_ptr": x, "out_ptr": x.clone()}, {"SIZE": 256})
    interpret(launch)
    assert "mul" in compile_launch(launch).ptx
