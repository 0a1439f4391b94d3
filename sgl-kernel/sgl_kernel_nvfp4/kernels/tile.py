"""The main loop of every W4A4 kernel: one output tile over a range of K."""

import triton
import triton.language as tl

from sgl_kernel_nvfp4.kernels.dot import block_scaled_dot
from sgl_kernel_nvfp4.kernels.scales import scale_offsets, scale_step


@triton.jit
def w4a4_tile(
    a_ptrs,
    a_scale_ptrs,
    b_ptrs,
    b_scale_ptrs,
    k_size,
    k_begin,
    k_end,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,
    NATIVE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """float32 [BLOCK_M, BLOCK_N]: A @ B.T over [k_begin, k_end).

    The pointers are those of K = 0, from ``operand_pointers``. Their rows exist, so
    only K is masked, and only where BLOCK_K does not divide it: codes by 16-byte words,
    scales by 4-byte words. What lies between K and the end of a word must be zero.
    """
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(k_begin, k_end, BLOCK_K, num_stages=STAGES):
        step = scale_step(k)
        if EVEN_K:
            b = tl.load(b_ptrs + k // 2, eviction_policy="evict_first")
            b_scale = tl.load(b_scale_ptrs + step, eviction_policy="evict_first")
            a = tl.load(a_ptrs + k // 2)
            a_scale = tl.load(a_scale_ptrs + step)
        else:
            code = tl.arange(0, BLOCK_K // 2)[None, :]
            block = tl.arange(0, BLOCK_K // 16)[None, :]
            coded = code < tl.cdiv(k_size, 32) * 16 - k // 2
            scaled = block < tl.cdiv(k_size, 64) * 4 - k // 16
            b = tl.load(
                b_ptrs + k // 2, mask=coded, other=0, eviction_policy="evict_first"
            )
            b_scale = tl.load(
                b_scale_ptrs + step,
                mask=scaled,
                other=0.0,
                eviction_policy="evict_first",
            )
            a = tl.load(a_ptrs + k // 2, mask=coded, other=0)
            a_scale = tl.load(a_scale_ptrs + step, mask=scaled, other=0.0)
        accumulator = block_scaled_dot(
            a, a_scale, b, b_scale, accumulator, BLOCK_M, BLOCK_N, BLOCK_K, NATIVE
        )
    return accumulator


@triton.jit
def operand_pointers(
    code_ptr, scale_ptr, rows, scale_rows, row_bytes, k_tiles, BLOCK_K: tl.constexpr
):
    """Pointers to the codes [R, BLOCK_K/2] and scales [R, BLOCK_K/16] of K = 0.

    rows: [R], counted from code_ptr; scale_rows: int32 [R], the same counted from the
    start of the tensor, as its tiles of scales demand.
    """
    codes = rows[:, None] * row_bytes + tl.arange(0, BLOCK_K // 2)[None, :]
    scales = scale_offsets(scale_rows, tl.arange(0, BLOCK_K // 16), k_tiles)
    return code_ptr + codes, scale_ptr + scales
