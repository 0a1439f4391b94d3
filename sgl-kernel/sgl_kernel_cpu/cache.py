"""The paged KV cache: rows written, gathered and moved by slot."""

import ctypes

import torch

from .registry import kernel


@kernel(
    "store_cache_cpu(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, "
    "Tensor indices, int row_dim) -> ()"
)
def store_cache_cpu(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    indices: torch.Tensor,
    row_dim: int,
) -> None:
    """Write one row of keys and one of values into the slot of every token.

    Args:
        k: [num_tokens, num_kv_heads, head_dim], or as many elements.
        v: [num_tokens, num_kv_heads, v_head_dim], or as many elements.
        k_cache: [num_slots, num_kv_heads, head_dim], written.
        v_cache: [num_slots, num_kv_heads, v_head_dim], written.
        indices: [num_tokens] int, the slots.
        row_dim: elements of a row; the caches' shapes say the same.
    """
    slots = indices.to(torch.int64)
    _write_rows(k_cache, slots, k)
    _write_rows(v_cache, slots, v)


def _write_rows(cache: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor) -> None:
    rows = rows.reshape(-1, *cache.shape[1:]).to(cache.dtype)
    if cache.dtype.itemsize == 1:  # PyTorch has no index_copy for float8
        cache, rows = cache.view(torch.uint8), rows.view(torch.uint8)
    cache.index_copy_(0, slots, rows)


def gather_rows(
    cache: torch.Tensor, slots: torch.Tensor, dtype: torch.dtype, scale: float | None
) -> torch.Tensor:
    """Rows of the cache as [*slots.shape, num_kv_heads, head_dim] in `dtype`.

    Args:
        cache: [num_slots, num_kv_heads, head_dim].
        slots: int, any shape.
        scale: what a float8_e4m3fn cache is multiplied by; other caches have none.
    """
    quantized = cache.dtype.itemsize == 1
    source = cache.view(torch.uint8) if quantized else cache
    rows = source.index_select(0, slots.flatten()).view(*slots.shape, *cache.shape[1:])
    if quantized:
        rows = rows.view(cache.dtype).to(torch.float32)
        if cache.dtype == torch.float8_e4m3fn and scale is not None:
            rows = rows * scale
    return rows.to(dtype)


@kernel(
    "copy_all_layer_kv_cache_cpu(Tensor data_ptrs, Tensor strides, Tensor tgt_loc, "
    "Tensor src_loc) -> ()"
)
def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor,
    strides: torch.Tensor,
    tgt_loc: torch.Tensor,
    src_loc: torch.Tensor,
) -> None:
    """Copy cache rows from source to target slots in every buffer.

    The sets of slots may overlap: a buffer's rows are all read before one is written.

    Args:
        data_ptrs: [num_buffers] uint64, addresses of the key and value buffers.
        strides: [num_buffers] int64, bytes of one row.
        tgt_loc: [num_rows] int64.
        src_loc: [num_rows] int64.
    """
    targets, sources = tgt_loc.tolist(), src_loc.tolist()
    moves = [(t, s) for t, s in zip(targets, sources, strict=True) if t != s]
    for base, row_bytes in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(base + s * row_bytes, row_bytes) for _, s in moves]
        for (target, _), row in zip(moves, rows, strict=True):
            ctypes.memmove(base + target * row_bytes, row, row_bytes)
