"""Bookkeeping of cache slots and tokens around speculative steps."""

from collections.abc import Iterator

import torch

from .registry import kernel


def _check_dtype(name: str, tensor: torch.Tensor, *dtypes: torch.dtype) -> None:
    if tensor.dtype not in dtypes:
        expected = " or ".join(map(str, dtypes))
        raise RuntimeError(f"{name} must be {expected}, not {tensor.dtype}.")


@kernel(
    "assign_req_to_token_pool_cpu(Tensor req_pool_indices, Tensor(a!) req_to_token, "
    "Tensor start_offset, Tensor end_offset, Tensor out_cache_loc, int pool_len, "
    "int bs_upper=0) -> ()"
)
def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    bs_upper: int = 0,
) -> None:
    """Write consecutive runs of `out_cache_loc` into the requests' rows.

    Args:
        req_pool_indices: [batch] int.
        req_to_token: [max_requests, pool_len] int32, written at [start, end) of rows.
        start_offset: [batch] int.
        end_offset: [batch] int.
        out_cache_loc: [sum of end - start] int64.
    """
    # One slice a request costs a fraction of one indexed write.
    written = 0
    for row, start, end in _spans(req_pool_indices, start_offset, end_offset):
        length = max(end - start, 0)
        req_to_token[row, start:end] = out_cache_loc[written : written + length]
        written += length


@kernel(
    "assign_extend_cache_locs_cpu(Tensor req_pool_indices, Tensor req_to_token, "
    "Tensor start_offset, Tensor end_offset, Tensor(a!) out_cache_loc, int pool_len) "
    "-> ()"
)
def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Read the slots at [start, end) of the requests' rows, one request after another.

    Args:
        req_pool_indices: [batch] int.
        req_to_token: [max_requests, pool_len] int.
        start_offset: [batch] int.
        end_offset: [batch] int.
        out_cache_loc: [at least sum of end - start] int64, written from its start.
    """
    written = 0
    for row, start, end in _spans(req_pool_indices, start_offset, end_offset):
        length = max(end - start, 0)
        out_cache_loc[written : written + length] = req_to_token[row, start:end]
        written += length


def _spans(
    req_pool_indices: torch.Tensor, start: torch.Tensor, end: torch.Tensor
) -> Iterator[tuple[int, int, int]]:
    """Row, first column and end column of every request."""
    return zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=True)


@kernel(
    "assign_draft_cache_locs_contiguous_cpu(Tensor req_pool_indices, "
    "Tensor req_to_token, Tensor seq_lens, Tensor(a!) out_cache_loc, int pool_len, "
    "int topk, int num_steps) -> ()"
)
def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read the `topk * num_steps` draft slots after every request's tokens.

    Args:
        req_pool_indices: [batch] int64.
        req_to_token: [max_requests, pool_len] int32.
        seq_lens: [batch] int64.
        out_cache_loc: [batch * topk * num_steps] int64, written.
    """
    _check_dtype("req_pool_indices", req_pool_indices, torch.int64)
    _check_dtype("req_to_token", req_to_token, torch.int32)
    _check_dtype("seq_lens", seq_lens, torch.int64)
    _check_dtype("out_cache_loc", out_cache_loc, torch.int64)
    num_slots = topk * num_steps
    if out_cache_loc.numel() != seq_lens.numel() * num_slots:
        raise RuntimeError(
            f"out_cache_loc has {out_cache_loc.numel()} elements; {seq_lens.numel()} "
            f"requests of topk {topk} and {num_steps} steps need "
            f"{seq_lens.numel() * num_slots}."
        )
    columns = seq_lens[:, None] + torch.arange(num_slots)
    slots = req_to_token[req_pool_indices[:, None], columns]
    out_cache_loc.copy_(slots.view(out_cache_loc.shape))


def _fake_metadata(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> torch.Tensor:
    return req_to_token.new_empty((seq_lens.shape[0] * topk, pool_len))


@kernel(
    "build_draft_decode_metadata_cpu(Tensor req_to_token, Tensor req_pool_indices, "
    "Tensor seq_lens, int topk, int num_steps, int pool_len) -> Tensor",
    fake=_fake_metadata,
)
def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> torch.Tensor:
    """One row of slots per draft candidate: the request's tokens, then its own drafts.

    Args:
        req_to_token: [max_requests, pool_len] int.
        req_pool_indices: [batch] int64.
        seq_lens: [batch] int64.

    Returns:
        [batch * topk, pool_len]; row `b * topk + k` ends, at seq_len + num_steps, with
        the slots that request b keeps at seq_len + k * num_steps. What follows them is
        not defined.
    """
    rows = req_to_token.index_select(0, req_pool_indices).repeat_interleave(topk, 0)
    if topk > 1:
        start = seq_lens.repeat_interleave(topk)[:, None] + torch.arange(num_steps)
        candidate = torch.arange(topk).repeat(seq_lens.shape[0])[:, None]
        # A row that ends before its last candidates' slots has none to copy.
        source = (start + candidate * num_steps).clamp_(max=pool_len - 1)
        rows.scatter_(1, start.clamp(max=pool_len - 1), rows.gather(1, source))
    return rows


@kernel(
    "fill_bonus_tokens_cpu(Tensor accept_tokens, Tensor accept_lens, "
    "Tensor(a!) bonus_tokens, int accept_stride) -> ()"
)
def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor,
    accept_lens: torch.Tensor,
    bonus_tokens: torch.Tensor,
    accept_stride: int,
) -> None:
    """Pick the last accepted token of every request.

    Args:
        accept_tokens: [batch * accept_stride] int, in any shape.
        accept_lens: [batch] int, accepted tokens with the bonus token.
        bonus_tokens: [batch] int, written.
        accept_stride: row width of `accept_tokens`.
    """
    last = accept_lens.to(torch.int64) - 1
    first = torch.arange(accept_lens.numel()) * accept_stride
    bonus_tokens.copy_(accept_tokens.flatten()[first + last])


@kernel(
    "fill_accept_out_cache_loc_cpu(Tensor accept_index, Tensor out_cache_loc, "
    "Tensor(a!) accept_out_cache_loc, int size=0) -> ()"
)
def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor,
    out_cache_loc: torch.Tensor,
    accept_out_cache_loc: torch.Tensor,
    size: int = 0,
) -> None:
    """Move the slots of accepted tokens to the front.

    Args:
        accept_index: int, any shape, indices into `out_cache_loc` or -1.
        out_cache_loc: [num_tokens] int64.
        accept_out_cache_loc: [at least the accepted tokens] int64, written.
        size: elements of `accept_index`; its shape says the same.
    """
    accepted = accept_index[accept_index >= 0]
    accept_out_cache_loc[: accepted.numel()] = out_cache_loc[accepted.to(torch.int64)]


@kernel(
    "rotate_input_ids_cpu(Tensor(a!) input_ids, Tensor extend_start_loc, "
    "Tensor extend_seq_lens, Tensor topk_index, Tensor? select_index=None) -> ()"
)
def rotate_input_ids_cpu(
    input_ids: torch.Tensor,
    extend_start_loc: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    topk_index: torch.Tensor,
    select_index: torch.Tensor | None = None,
) -> None:
    """Shift every request's tokens left by one and append its next token.

    Args:
        input_ids: [num_tokens] int64, written.
        extend_start_loc: [batch] int64.
        extend_seq_lens: [batch] int64.
        topk_index: [batch] int64, the next tokens, in any shape.
        select_index: [batch] int64, where they go, the last place by default.
    """
    for name, tensor in (("input_ids", input_ids), ("topk_index", topk_index)):
        _check_dtype(name, tensor, torch.int64)
    starts, lengths = extend_start_loc.tolist(), extend_seq_lens.tolist()
    for start, length in zip(starts, lengths, strict=True):
        if length > 1:
            shifted = input_ids[start + 1 : start + length].clone()
            input_ids[start : start + length - 1] = shifted
    last = select_index
    if last is None:
        last = extend_start_loc + extend_seq_lens - 1
    is_real = extend_seq_lens > 0
    input_ids[last[is_real].to(torch.int64)] = topk_index.flatten()[is_real]
