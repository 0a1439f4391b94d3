"""Dense GEMM with 16-bit activations and NVFP4 weights, for M up to 64."""

import triton
import triton.language as tl

from sgl_kernel_nvfp4.kernels.gemm import tile_coordinates
from sgl_kernel_nvfp4.kernels.scales import scale_offsets, scale_step
from sgl_kernel_nvfp4.kernels.split import reduce_splits, split_range

# Four bytes hold the e2m1 codes of eight elements. Every 16-bit lane gets a code's sign
# at bit 15 and its other bits at the lowest exponent bits of the format, so that it
# reads as the value times the format's least power of two: exponent 0 is subnormal in
# all three.
_SPREAD = """
{{
.reg .b32 x, y, s, m;
prmt.b32 x, $4, 0, 0x4140;
prmt.b32 y, $4, 0, 0x4342;
shl.b32 s, x, 12;
and.b32 s, s, 0x80008000;
shl.b32 m, x, {low};
lop3.b32 $0, m, {mask}, s, 0xEA;
shl.b32 s, y, 12;
and.b32 s, s, 0x80008000;
shl.b32 m, y, {low};
lop3.b32 $1, m, {mask}, s, 0xEA;
shl.b32 s, x, 8;
and.b32 s, s, 0x80008000;
shl.b32 m, x, {high};
lop3.b32 $2, m, {mask}, s, 0xEA;
shl.b32 s, y, 8;
and.b32 s, s, 0x80008000;
shl.b32 m, y, {high};
lop3.b32 $3, m, {mask}, s, 0xEA;
}}
"""
_TO_BFLOAT16 = tl.constexpr(_SPREAD.format(low=6, high=2, mask="0x01C001C0"))
_TO_FLOAT16 = tl.constexpr(_SPREAD.format(low=9, high=5, mask="0x0E000E00"))

# The codes come out times 2**-126 or 2**-14. As much of that as the format can carry
# for a scale of 448 is put into the scale; the rest is left to the accumulator.
_BFLOAT16_SCALE = tl.constexpr(2.0**100)
_BFLOAT16_REST = tl.constexpr(2.0**26)
_FLOAT16_SCALE = tl.constexpr(2.0**7)
_FLOAT16_REST = tl.constexpr(2.0**7)


@triton.jit
def weight_tile(codes, scale, dtype: tl.constexpr, ROWS: tl.constexpr, K: tl.constexpr):
    """The weights as ``dtype`` [ROWS, K], exact up to a power of two left for later."""
    BFLOAT16: tl.constexpr = dtype == tl.bfloat16
    low, high = tl.inline_asm_elementwise(
        _TO_BFLOAT16 if BFLOAT16 else _TO_FLOAT16,
        "=r,=r,=r,=r,r",
        [codes],
        dtype=(tl.int16, tl.int16),
        is_pure=True,
        pack=4,
    )
    scale = scale.to(tl.float32) * (_BFLOAT16_SCALE if BFLOAT16 else _FLOAT16_SCALE)
    scale = scale.to(dtype)
    scale = tl.broadcast_to(scale[:, :, None], (ROWS, K // 16, 16)).reshape(ROWS, K)
    value = tl.join(low, high).reshape(ROWS, K).to(dtype, bitcast=True)
    return value * scale


@triton.jit(
    do_not_specialize=[
        "m_size",
        "n_blocks",
        "k_blocks",
        "x_units",
        "b_units",
        "out_units",
    ]
)
def w4a16_gemm(
    x_ptr,
    b_ptr,
    b_scale_ptr,
    alpha_ptr,
    out_ptr,
    partial_ptr,
    arrived_ptr,
    m_size,
    n_blocks,
    k_blocks,
    x_units,
    b_units,
    out_units,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    """out[m, n] = alpha * sum_k x[m, k] * b[n, k] for float16 or bfloat16 x.

    Grid and units as in ``w4a4_gemm``; x_units is the row stride of x in 8 elements.
    """
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    k_size = k_blocks * 16
    n_size = n_blocks * 16
    m_tile, n_tile = tile_coordinates(m_size, n_size, BLOCK_M, BLOCK_N, GROUP_M)
    m_begin = m_tile * BLOCK_M
    n_begin = n_tile * BLOCK_N
    rows = tl.minimum(tl.arange(0, BLOCK_M), m_size - 1 - m_begin)
    columns = tl.minimum(tl.arange(0, BLOCK_N), n_size - 1 - n_begin)
    element = tl.arange(0, BLOCK_K)[None, :]
    code = tl.arange(0, BLOCK_K // 2)[None, :]
    block = tl.arange(0, BLOCK_K // 16)
    x_ptrs = x_ptr + m_begin.to(tl.int64) * (x_units * 8)
    x_ptrs += rows[:, None] * (x_units * 8) + element
    b_ptrs = b_ptr + n_begin.to(tl.int64) * (b_units * 16)
    b_ptrs += columns[:, None] * (b_units * 16) + code
    b_scale_ptrs = b_scale_ptr + scale_offsets(
        n_begin + columns, block, tl.cdiv(k_size, 64)
    )
    k_begin, k_end = split_range(k_size, BLOCK_K, SPLIT_K)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(k_begin, k_end, BLOCK_K, num_stages=STAGES):
        if EVEN_K:
            b = tl.load(b_ptrs + k // 2, eviction_policy="evict_first")
            scale = tl.load(b_scale_ptrs + scale_step(k), eviction_policy="evict_first")
            x = tl.load(x_ptrs + k)
        else:
            b = tl.load(
                b_ptrs + k // 2,
                mask=code < tl.cdiv(k_size, 32) * 16 - k // 2,
                other=0,
                eviction_policy="evict_first",
            )
            scale = tl.load(
                b_scale_ptrs + scale_step(k),
                mask=block[None, :] < tl.cdiv(k_size, 64) * 4 - k // 16,
                other=0.0,
                eviction_policy="evict_first",
            )
            x = tl.load(x_ptrs + k, mask=element < k_size - k, other=0.0)
        weight = weight_tile(b, scale, dtype, BLOCK_N, BLOCK_K)
        accumulator = tl.dot(x, weight.T, accumulator)
    accumulator *= _BFLOAT16_REST if dtype == tl.bfloat16 else _FLOAT16_REST
    reduce_splits(
        accumulator * tl.load(alpha_ptr),
        out_ptr,
        partial_ptr,
        arrived_ptr,
        m_begin,
        n_begin,
        m_size,
        n_size,
        out_units * 16,
        BLOCK_M,
        BLOCK_N,
        SPLIT_K,
    )
