"""The proposal head: arg-max of a GEMM whose logits stay on chip."""

import triton
import triton.language as tl

from sgl_kernel_nvfp4.kernels.tile import operand_pointers, w4a4_tile


@triton.jit
def ordered_key(value, index):
    """int64 that orders (value, index) pairs: greater value first, then lower index.

    NaN counts as greater than infinity, as torch.argmax has it; -0.0 equals 0.0.
    """
    bits = (value + 0.0).to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    ordered = tl.where(value == value, ordered, 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - index).to(tl.int64)


@triton.jit
def key_value(key):
    """The float32 value in a key of ``ordered_key``."""
    ordered = (key >> 32).to(tl.int32)
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit(
    do_not_specialize=[
        "m_size",
        "n_size",
        "k_blocks",
        "a_units",
        "b_units",
        "first_index",
    ]
)
def w4a4_argmax(
    a_ptr,
    a_scale_ptr,
    b_ptr,
    b_scale_ptr,
    alpha_ptr,
    index_ptr,
    value_ptr,
    best_ptr,
    arrived_ptr,
    m_size,
    n_size,
    k_blocks,
    a_units,
    b_units,
    first_index,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,
    NATIVE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """index[m] = first_index + argmax_n, value[m] = max_n of alpha * (a @ b.T)[m, n].

    Grid: (tiles of N, tiles of M). best: int64 [M], the least int64 before and after;
    arrived: int32 [tiles of M], zero before and after. A maximum of integers does not
    depend on the order of its terms, so neither does the result.
    """
    k_size = k_blocks * 16
    n_begin = tl.program_id(0) * BLOCK_N
    m_begin = tl.program_id(1) * BLOCK_M
    k_tiles = tl.cdiv(k_size, 64)
    rows = m_begin + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    a_rows = tl.minimum(rows, m_size - 1)
    b_rows = tl.minimum(columns, n_size - 1 - n_begin)
    a_ptrs, a_scale_ptrs = operand_pointers(
        a_ptr, a_scale_ptr, a_rows, a_rows, a_units * 16, k_tiles, BLOCK_K
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
    accumulator = w4a4_tile(
        a_ptrs,
        a_scale_ptrs,
        b_ptrs,
        b_scale_ptrs,
        k_size,
        0,
        k_size,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        EVEN_K,
        NATIVE,
        STAGES,
    )
    LEAST: tl.constexpr = -0x8000000000000000
    logits = accumulator * tl.load(alpha_ptr)
    vocabulary = n_begin + columns
    keys = ordered_key(logits, vocabulary[None, :])
    keys = tl.where((vocabulary < n_size)[None, :], keys, LEAST)
    inside = rows < m_size
    tl.atomic_max(best_ptr + rows, tl.max(keys, axis=1), mask=inside, sem="relaxed")
    tl.debug_barrier()
    arrived = tl.atomic_add(
        arrived_ptr + tl.program_id(1), 1, sem="acq_rel", scope="gpu"
    )
    if arrived == tl.num_programs(0) - 1:
        best = tl.load(best_ptr + rows, mask=inside, other=0, cache_modifier=".cg")
        winner = 0x7FFFFFFF - (best & 0x7FFFFFFF)
        tl.store(index_ptr + rows, first_index + winner, mask=inside)
        tl.store(value_ptr + rows, key_value(best), mask=inside)
        tl.debug_barrier()
        tl.store(best_ptr + rows, tl.full((BLOCK_M,), LEAST, tl.int64), mask=inside)
        tl.store(arrived_ptr + tl.program_id(1), 0)
