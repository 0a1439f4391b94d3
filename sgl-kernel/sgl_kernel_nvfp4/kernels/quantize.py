"""Quantisation to NVFP4, alone and fused with what comes before it."""

import triton
import triton.language as tl

from sgl_kernel_nvfp4.kernels.scales import scale_offsets

_PACK_E2M1 = tl.constexpr("""
{
.reg .b8 b0, b1, b2, b3;
cvt.rn.satfinite.e2m1x2.f32 b0, $5, $1;
cvt.rn.satfinite.e2m1x2.f32 b1, $6, $2;
cvt.rn.satfinite.e2m1x2.f32 b2, $7, $3;
cvt.rn.satfinite.e2m1x2.f32 b3, $8, $4;
mov.b32 $0, {b0, b1, b2, b3};
}
""")


@triton.jit
def divide(numerator, denominator, reciprocal):
    """numerator / denominator, exact where the quotient is representable.

    One correction step after the approximate quotient: a value half-way between two
    codes must stay half-way, or rounding to even goes wrong.
    """
    quotient = numerator * reciprocal
    excess = tl.fma(quotient, denominator, -numerator)  # this way round -0.0 stays -0.0
    corrected = tl.fma(-excess, reciprocal, quotient)
    return tl.where(tl.abs(quotient) < 1024.0, corrected, quotient)


@triton.jit
def e2m1_code(value):
    """int32 codes of float32 values: nearest, ties to even; saturates; NaN gives 7."""
    size = tl.abs(value)
    code = (size > 0.25).to(tl.int32) + (size >= 0.75).to(tl.int32)
    code += (size > 1.25).to(tl.int32) + (size >= 1.75).to(tl.int32)
    code += (size > 2.5).to(tl.int32) + (size >= 3.5).to(tl.int32)
    code += (size > 5.0).to(tl.int32)
    sign = (value.to(tl.int32, bitcast=True) >> 28) & 8
    return tl.where(value == value, code | sign, 7)


@triton.jit
def pack_e2m1(value, ROWS: tl.constexpr, K: tl.constexpr, NATIVE: tl.constexpr):
    """uint8 [ROWS, K/2] of float32 [ROWS, K]; the even column is the low nibble."""
    low, high = value.reshape(ROWS, K // 2, 2).split()
    if NATIVE:
        packed = tl.inline_asm_elementwise(
            _PACK_E2M1,
            "=r,r,r,r,r,r,r,r,r",
            [low, high],
            dtype=tl.uint8,
            is_pure=True,
            pack=4,
        )
    else:
        packed = (e2m1_code(low) | (e2m1_code(high) << 4)).to(tl.uint8)
    return packed


@triton.jit
def quantize_tile(
    value, global_scale, ROWS: tl.constexpr, K: tl.constexpr, NATIVE: tl.constexpr
):
    """Codes uint8 [ROWS, K/2] and scales float8_e4m3 [ROWS, K/16] of float32 [ROWS, K].

    scale = round(global_scale * amax / 6), at most 448; code = round(value *
    global_scale / scale). A NaN makes the scale of its block NaN. global_scale:
    float32, a scalar or [ROWS, 1].
    """
    blocks = value.reshape(ROWS, K // 16, 16)
    # Sizes order as their bits do, NaN above infinity: an integer maximum keeps NaN.
    size = tl.max(tl.abs(blocks).to(tl.int32, bitcast=True), axis=2)
    scale = size.to(tl.float32, bitcast=True) * global_scale
    scale = divide(scale, 6.0, 1.0 / 6.0)
    scale = tl.where(scale > 448.0, 448.0, scale).to(tl.float8e4nv)
    divisor = scale.to(tl.float32)
    reciprocal = tl.where(divisor == 0.0, 0.0, 1.0 / divisor)
    divisor = tl.broadcast_to(divisor[:, :, None], (ROWS, K // 16, 16))
    reciprocal = tl.broadcast_to(reciprocal[:, :, None], (ROWS, K // 16, 16))
    scaled = (value * global_scale).reshape(ROWS, K // 16, 16)
    scaled = divide(scaled, divisor, reciprocal).reshape(ROWS, K)
    return pack_e2m1(scaled, ROWS, K, NATIVE), scale


@triton.jit
def store_quantized(
    value,
    global_scale,
    code_ptr,
    scale_ptr,
    rows,
    k_begin,
    m_size,
    k_size,
    code_units,
    scale_stride,
    ROWS: tl.constexpr,
    K: tl.constexpr,
    SWIZZLED: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """Quantise float32 [ROWS, K], zero beyond k_size, and store it with its padding.

    Codes are padded with zeros to 16 bytes; swizzled scales to 4 blocks. scale_stride:
    ceil(k_size / 64) when swizzled, otherwise the row stride in blocks.
    """
    codes, scales = quantize_tile(value, global_scale, ROWS, K, NATIVE)
    column = k_begin // 2 + tl.arange(0, K // 2)
    offsets = rows.to(tl.int64)[:, None] * (code_units * 16) + column[None, :]
    inside = (rows < m_size)[:, None] & (column < tl.cdiv(k_size, 32) * 16)[None, :]
    tl.store(code_ptr + offsets, codes, mask=inside)
    block = k_begin // 16 + tl.arange(0, K // 16)
    if SWIZZLED:
        offsets = scale_offsets(rows, block, scale_stride)
        blocks = tl.cdiv(k_size, 64) * 4
    else:
        offsets = rows[:, None] * scale_stride + block[None, :]
        blocks = k_size // 16
    inside = (rows < m_size)[:, None] & (block < blocks)[None, :]
    tl.store(scale_ptr + offsets, scales, mask=inside)


@triton.jit(
    do_not_specialize=["m_size", "k_blocks", "x_units", "code_units", "scale_stride"]
)
def quantize(
    x_ptr,
    global_scale_ptr,
    expert_ptr,
    code_ptr,
    scale_ptr,
    m_size,
    k_blocks,
    x_units,
    code_units,
    scale_stride,
    ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GATED: tl.constexpr,
    GATE_FIRST: tl.constexpr,
    PER_EXPERT: tl.constexpr,
    SWIZZLED: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """NVFP4 of x [M, K], or of silu(gate) * up for x [M, 2 K] when GATED.

    Grid: (tiles of M, tiles of K). The gated product is rounded to the type of x first,
    as the unfused kernels do. PER_EXPERT takes global_scale[expert[m]], 1 for expert
    -1. x_units and code_units: row strides in 8 elements and in 16 bytes.
    """
    k_size = k_blocks * 16
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k_begin = tl.program_id(1) * BLOCK_K
    column = k_begin + tl.arange(0, BLOCK_K)[None, :]
    inside = (rows < m_size)[:, None] & (column < k_size)
    x_ptrs = x_ptr + rows.to(tl.int64)[:, None] * (x_units * 8) + column
    if GATED:
        first = tl.load(x_ptrs, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(x_ptrs + k_size, mask=inside, other=0.0).to(tl.float32)
        gate = first if GATE_FIRST else second
        up = second if GATE_FIRST else first
        value = gate / (1.0 + tl.exp(-gate)) * up
        value = value.to(x_ptr.dtype.element_ty).to(tl.float32)
    else:
        value = tl.load(x_ptrs, mask=inside, other=0.0).to(tl.float32)
    if PER_EXPERT:
        expert = tl.load(expert_ptr + rows, mask=rows < m_size, other=-1)
        global_scale = tl.load(global_scale_ptr + expert, mask=expert >= 0, other=1.0)
        global_scale = global_scale[:, None]
    else:
        global_scale = tl.load(global_scale_ptr)
    store_quantized(
        value,
        global_scale,
        code_ptr,
        scale_ptr,
        rows,
        k_begin,
        m_size,
        k_size,
        code_units,
        scale_stride,
        ROWS,
        BLOCK_K,
        SWIZZLED,
        NATIVE,
    )
