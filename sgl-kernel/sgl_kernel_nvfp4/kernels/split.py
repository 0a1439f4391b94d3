"""Split K: which part of K a program takes, and how the parts become one tile."""

import triton
import triton.language as tl


@triton.jit
def split_range(k_size, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr):
    """[begin, end) of this program's part of K; the last parts may be empty."""
    blocks = tl.cdiv(tl.cdiv(k_size, BLOCK_K), SPLIT_K)
    begin = tl.program_id(1) * blocks * BLOCK_K
    return begin, tl.minimum(begin + blocks * BLOCK_K, k_size)


@triton.jit
def store_tile(
    tile,
    out_ptr,
    m_begin,
    n_begin,
    m_size,
    n_size,
    out_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    rows = m_begin + tl.arange(0, BLOCK_M)
    columns = n_begin + tl.arange(0, BLOCK_N)
    offsets = rows.to(tl.int64)[:, None] * out_stride + columns[None, :]
    inside = (rows < m_size)[:, None] & (columns < n_size)[None, :]
    tl.store(out_ptr + offsets, tile.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def reduce_splits(
    tile,
    out_ptr,
    partial_ptr,
    arrived_ptr,
    m_begin,
    n_begin,
    m_size,
    n_size,
    out_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLIT_K: tl.constexpr,
):
    """Write the sum of the SPLIT_K tiles of this output tile, added in order of K.

    partial: float32 [SPLIT_K, tiles, BLOCK_M, BLOCK_N], no initial value needed.
    arrived: int32 [tiles], zero before and zero after.
    Whichever program arrives last adds all parts, its own too, from memory, so the
    result does not depend on who that was.
    """
    if SPLIT_K == 1:
        store_tile(
            tile,
            out_ptr,
            m_begin,
            n_begin,
            m_size,
            n_size,
            out_stride,
            BLOCK_M,
            BLOCK_N,
        )
    else:
        index = tl.program_id(0)
        tiles = tl.num_programs(0)
        element = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N
        element += tl.arange(0, BLOCK_N)[None, :]
        part = (tl.program_id(1) * tiles + index) * (BLOCK_M * BLOCK_N)
        tl.store(partial_ptr + part + element, tile)
        tl.debug_barrier()
        arrived = tl.atomic_add(arrived_ptr + index, 1, sem="acq_rel", scope="gpu")
        if arrived == SPLIT_K - 1:
            total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for split in tl.static_range(SPLIT_K):
                part = (split * tiles + index) * (BLOCK_M * BLOCK_N)
                # .cg: the parts were written by other SMs; L1 may hold older bytes.
                total += tl.load(partial_ptr + part + element, cache_modifier=".cg")
            store_tile(
                total,
                out_ptr,
                m_begin,
                n_begin,
                m_size,
                n_size,
                out_stride,
                BLOCK_M,
                BLOCK_N,
            )
            tl.store(arrived_ptr + index, 0)
