"""Grouped GEMM over experts, on SGLang's sorted-token layout."""

import triton
import triton.language as tl

from sgl_kernel_nvfp4.kernels.tile import operand_pointers, w4a4_tile


@triton.jit(
    do_not_specialize=[
        "pair_count",
        "n_blocks",
        "k_blocks",
        "a_units",
        "b_units",
        "b_expert_units",
        "scale_expert_units",
        "out_units",
    ]
)
def w4a4_grouped_gemm(
    a_ptr,
    a_scale_ptr,
    b_ptr,
    b_scale_ptr,
    alpha_ptr,
    out_ptr,
    pair_weight_ptr,
    sorted_token_ids_ptr,
    expert_ids_ptr,
    num_tokens_post_padded_ptr,
    pair_count,
    n_blocks,
    k_blocks,
    a_units,
    b_units,
    b_expert_units,
    scale_expert_units,
    out_units,
    PAIRS_PER_ROW: tl.constexpr,
    WEIGHTED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,
    NATIVE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """out[p] = alpha[e] * (a[p // PAIRS_PER_ROW] @ b[e].T), e the expert of pair p.

    A pair is a (token, choice) number in [0, pair_count). Grid: (tiles of N, blocks of
    sorted pairs); blocks beyond num_tokens_post_padded stop at once. A block of expert
    -1 (an expert of another rank) writes zeros. WEIGHTED multiplies by pair_weight[p].
    n_blocks and out_units count 16 elements, b_expert_units 16 bytes,
    scale_expert_units tiles of 512 bytes.
    """
    block = tl.program_id(1)
    if block * BLOCK_M >= tl.load(num_tokens_post_padded_ptr):
        return
    k_size = k_blocks * 16
    n_size = n_blocks * 16
    n_begin = tl.program_id(0) * BLOCK_N
    k_tiles = tl.cdiv(k_size, 64)
    pairs = tl.load(sorted_token_ids_ptr + block * BLOCK_M + tl.arange(0, BLOCK_M))
    valid = pairs < pair_count
    expert = tl.load(expert_ids_ptr + block).to(tl.int64)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if expert >= 0:
        a_rows = tl.where(valid, pairs // PAIRS_PER_ROW, 0)
        b_rows = tl.minimum(tl.arange(0, BLOCK_N), n_size - 1 - n_begin)
        a_ptrs, a_scale_ptrs = operand_pointers(
            a_ptr,
            a_scale_ptr,
            a_rows.to(tl.int64),
            a_rows,
            a_units * 16,
            k_tiles,
            BLOCK_K,
        )
        first_row = expert * b_expert_units + n_begin.to(tl.int64) * b_units
        b_ptrs, b_scale_ptrs = operand_pointers(
            b_ptr + first_row * 16,
            b_scale_ptr + expert * scale_expert_units * 512,
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
        accumulator *= tl.load(alpha_ptr + expert)
        if WEIGHTED:
            weight = tl.load(pair_weight_ptr + pairs, mask=valid, other=0.0)
            accumulator *= weight.to(tl.float32)[:, None]
    columns = n_begin + tl.arange(0, BLOCK_N)
    offsets = pairs.to(tl.int64)[:, None] * (out_units * 16) + columns[None, :]
    inside = valid[:, None] & (columns < n_size)[None, :]
    tl.store(out_ptr + offsets, accumulator.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["n_blocks", "pair_units", "out_units", "factor"])
def combine_pairs(
    pair_ptr,
    out_ptr,
    n_blocks,
    pair_units,
    out_units,
    factor,
    TOP_K: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """out[t] = factor * sum of pairs [t * TOP_K, (t + 1) * TOP_K), in that order.

    Grid: (tokens, tiles of N). Row strides are in units of 8 elements.
    """
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = columns < n_blocks * 16
    total = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for choice in range(TOP_K):
        row = pair_ptr + (token * TOP_K + choice) * (pair_units * 8)
        total += tl.load(row + columns, mask=inside, other=0.0).to(tl.float32)
    total *= factor
    out = out_ptr + token * (out_units * 8) + columns
    tl.store(out, total.to(out_ptr.dtype.element_ty), mask=inside)
