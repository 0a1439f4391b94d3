"""The block-scaled product of two packed tiles."""

import triton
import triton.language as tl


@triton.jit
def decode_e2m1(code):
    """float32 value of the int32 4-bit codes ``code``."""
    magnitude = code & 7
    exponent = ((magnitude >> 1) + 126) << 23
    normal = (exponent | ((magnitude & 1) << 22)).to(tl.float32, bitcast=True)
    value = tl.where(magnitude < 2, magnitude.to(tl.float32) * 0.5, normal)
    return tl.where((code & 8) != 0, -value, value)


@triton.jit
def dequantize_tile(packed, scale, ROWS: tl.constexpr, K: tl.constexpr):
    """bfloat16 [ROWS, K] of uint8 [ROWS, K/2] and float8_e4m3 [ROWS, K/16]. Exact."""
    low = (packed & 0xF).to(tl.int32)
    high = (packed >> 4).to(tl.int32)
    value = decode_e2m1(tl.join(low, high).reshape(ROWS, K))
    scale = scale.to(tl.float32)[:, :, None]
    scale = tl.broadcast_to(scale, (ROWS, K // 16, 16)).reshape(ROWS, K)
    return (value * scale).to(tl.bfloat16)


@triton.jit
def block_scaled_dot(
    a,
    a_scale,
    b,
    b_scale,
    accumulator,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NATIVE: tl.constexpr,
):
    """accumulator + A @ B.T for packed A [BLOCK_M, K/2] and B [BLOCK_N, K/2].

    NATIVE uses the FP4 tensor cores of SM12x; otherwise both tiles become bfloat16,
    which is exact (two bits of significand times four) and runs from SM80 on.
    """
    if NATIVE:
        accumulator = tl.dot_scaled(
            a, a_scale, "e2m1", b.T, b_scale, "e2m1", accumulator
        )
    else:
        a_value = dequantize_tile(a, a_scale, BLOCK_M, BLOCK_K)
        b_value = dequantize_tile(b, b_scale, BLOCK_N, BLOCK_K)
        accumulator = tl.dot(a_value, b_value.T, accumulator)
    return accumulator
