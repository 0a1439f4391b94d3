"""Dense GEMM, NVFP4 x NVFP4: decode (split K) and prefill."""

import triton
import triton.language as tl

from sgl_kernel_nvfp4.kernels.split import reduce_splits, split_range
from sgl_kernel_nvfp4.kernels.tile import operand_pointers, w4a4_tile


@triton.jit
def tile_coordinates(
    m_size,
    n_size,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Tile of this program: GROUP_M tiles of rows share each tile of weights in L2."""
    index = tl.program_id(0)
    m_tiles = tl.cdiv(m_size, BLOCK_M)
    n_tiles = tl.cdiv(n_size, BLOCK_N)
    group = index // (GROUP_M * n_tiles)
    rows = tl.minimum(m_tiles - group * GROUP_M, GROUP_M)
    within = index % (GROUP_M * n_tiles)
    return group * GROUP_M + within % rows, within // rows


@triton.jit(
    do_not_specialize=[
        "m_size",
        "n_blocks",
        "k_blocks",
        "a_units",
        "b_units",
        "out_units",
    ]
)
def w4a4_gemm(
    a_ptr,
    a_scale_ptr,
    b_ptr,
    b_scale_ptr,
    alpha_ptr,
    out_ptr,
    partial_ptr,
    arrived_ptr,
    m_size,
    n_blocks,
    k_blocks,
    a_units,
    b_units,
    out_units,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
    NATIVE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """out[m, n] = alpha * sum_k a[m, k] * b[n, k], with the block scales of a and b.

    Grid: (tiles of M x N, SPLIT_K). n_blocks, k_blocks and out_units count 16 elements,
    a_units and b_units 16 bytes: so the compiler sees alignment whatever the values.
    """
    k_size = k_blocks * 16
    n_size = n_blocks * 16
    m_tile, n_tile = tile_coordinates(m_size, n_size, BLOCK_M, BLOCK_N, GROUP_M)
    m_begin = m_tile * BLOCK_M
    n_begin = n_tile * BLOCK_N
    k_tiles = tl.cdiv(k_size, 64)
    a_rows = tl.minimum(tl.arange(0, BLOCK_M), m_size - 1 - m_begin)
    b_rows = tl.minimum(tl.arange(0, BLOCK_N), n_size - 1 - n_begin)
    a_ptrs, a_scale_ptrs = operand_pointers(
        a_ptr + m_begin.to(tl.int64) * (a_units * 16),
        a_scale_ptr,
        a_rows,
        m_begin + a_rows,
        a_units * 16,
        k_tiles,
        BLOCK_K,
    )
    b_ptrs, b_scale_ptrs = operand_pointers(
        b_ptr + n_begin.to(tl.int64) * (b_units * 16),
        b_scale_ptr,
        b_rows,
        n_begin + b_rows,
        b_units * 16,
        k_tiles,
        BLOCK_K,
    )
    k_begin, k_end = split_range(k_size, BLOCK_K, SPLIT_K)
    accumulator = w4a4_tile(
        a_ptrs,
        a_scale_ptrs,
        b_ptrs,
        b_scale_ptrs,
        k_size,
        k_begin,
        k_end,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        EVEN_K,
        NATIVE,
        STAGES,
    )
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
