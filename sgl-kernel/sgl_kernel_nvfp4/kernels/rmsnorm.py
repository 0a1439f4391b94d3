"""RMSNorm whose result goes straight to NVFP4."""

import triton
import triton.language as tl

from sgl_kernel_nvfp4.kernels.quantize import store_quantized


@triton.jit(
    do_not_specialize=[
        "m_size",
        "k_blocks",
        "x_units",
        "residual_units",
        "code_units",
        "scale_stride",
        "epsilon",
        "weight_offset",
    ]
)
def rmsnorm_quantize(
    x_ptr,
    residual_ptr,
    weight_ptr,
    global_scale_ptr,
    code_ptr,
    scale_ptr,
    m_size,
    k_blocks,
    x_units,
    residual_units,
    code_units,
    scale_stride,
    epsilon,
    weight_offset,
    BLOCK_K: tl.constexpr,
    RESIDUAL: tl.constexpr,
    SWIZZLED: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """NVFP4 of x * rsqrt(mean(x**2) + epsilon) * (weight + weight_offset).

    Grid: (M,). With RESIDUAL, x is first added to residual, in place. The normed row is
    rounded to the type of x before it is quantised, as the unfused kernels do.
    """
    k_size = k_blocks * 16
    row = tl.program_id(0)
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    x_row = x_ptr + row.to(tl.int64) * (x_units * 8)
    residual_row = residual_ptr + row.to(tl.int64) * (residual_units * 8)
    column = tl.arange(0, BLOCK_K)[None, :]
    squares = tl.zeros((1, BLOCK_K), dtype=tl.float32)
    for k in range(0, k_size, BLOCK_K):
        inside = column < k_size - k
        value = tl.load(x_row + k + column, mask=inside, other=0.0).to(tl.float32)
        if RESIDUAL:
            other = tl.load(residual_row + k + column, mask=inside, other=0.0)
            value += other.to(tl.float32)
        squares += value * value
    scale = tl.rsqrt(tl.sum(squares, axis=1) / k_size + epsilon)[:, None]
    global_scale = tl.load(global_scale_ptr)
    for k in range(0, k_size, BLOCK_K):
        inside = column < k_size - k
        value = tl.load(x_row + k + column, mask=inside, other=0.0).to(tl.float32)
        if RESIDUAL:
            other = tl.load(residual_row + k + column, mask=inside, other=0.0)
            value += other.to(tl.float32)
            tl.store(residual_row + k + column, value.to(dtype), mask=inside)
        weight = tl.load(weight_ptr + k + column, mask=inside, other=0.0)
        value *= scale
        value *= weight.to(tl.float32) + weight_offset
        value = tl.where(inside, value, 0.0)
        store_quantized(
            value.to(dtype).to(tl.float32),
            global_scale,
            code_ptr,
            scale_ptr,
            row + tl.arange(0, 1),
            k,
            m_size,
            k_size,
            code_units,
            scale_stride,
            1,
            BLOCK_K,
            SWIZZLED,
            NATIVE,
        )
