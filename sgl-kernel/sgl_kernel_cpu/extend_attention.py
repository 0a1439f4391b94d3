"""Attention of several new tokens per request: prefill, draft extend, verify."""

import torch

from .attention import AttentionConfig, PagedCache, attend_causally, padding_is_small
from .cache import gather_rows
from .registry import kernel

# Above this many new tokens per request, attention itself outweighs a call for each.
_MAX_BATCHED_EXTEND = 32


@kernel(
    "extend_attention_cpu(Tensor q_extend, Tensor? k_extend, Tensor? v_extend, "
    "Tensor(a!) o_extend, Tensor k_buffer, Tensor v_buffer, float? k_scale, "
    "float? v_scale, Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, "
    "Tensor extend_seq_lens, Tensor extend_start_loc, int max_len_extend, "
    "float sm_scale, float logit_cap, bool is_cross_attn=False, "
    "int sliding_window_size=0, Tensor? encoder_lens=None, Tensor? sinks=None, "
    "Tensor? tree_mask=None, bool is_causal=True) -> ()"
)
def extend_attention_cpu(
    q_extend: torch.Tensor,
    k_extend: torch.Tensor | None,
    v_extend: torch.Tensor | None,
    o_extend: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    k_scale: float | None,
    v_scale: float | None,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    extend_start_loc: torch.Tensor,
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool = False,
    sliding_window_size: int = 0,
    encoder_lens: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    tree_mask: torch.Tensor | None = None,
    is_causal: bool = True,
) -> None:
    """Attend from the new tokens of every request, whose keys are in the cache already.

    Args:
        q_extend: [num_tokens, num_heads, head_dim], requests one after the other.
        k_extend: the new keys, unused: the buffer has them.
        v_extend: the new values, unused likewise.
        o_extend: [num_tokens, num_heads, v_head_dim], written.
        k_buffer: [num_slots, num_kv_heads, head_dim].
        v_buffer: [num_slots, num_kv_heads, v_head_dim].
        k_scale: dequantization factor of a float8_e4m3fn key cache.
        v_scale: dequantization factor of a float8_e4m3fn value cache.
        req_to_token: [max_requests, max_context] int, slots by position.
        req_pool_indices: [batch] int64, rows of `req_to_token`.
        seq_lens: [batch] int64, tokens with the new ones.
        extend_seq_lens: [batch] int, new tokens.
        extend_start_loc: [batch] int, a request's first row of `q_extend`.
        max_len_extend: the largest of `extend_seq_lens`.
        logit_cap: 0 for none.
        is_cross_attn: attend to the encoder's tokens instead, all of them.
        sliding_window_size: keys that a token sees, itself included; 0 for all.
        encoder_lens: [batch] int64, encoder tokens that lead each row.
        sinks: [num_heads] logits without a value.
        tree_mask: bool, which new token sees which, in either layout of
            `build_tree_kernel_efficient_cpu`; the committed prefix is always seen.
        is_causal: without a tree mask, whether a new token sees only earlier ones.
    """
    cache = PagedCache(k_buffer, v_buffer, k_scale, v_scale, req_to_token)
    config = AttentionConfig(sm_scale, logit_cap, sinks)
    if is_cross_attn:
        assert encoder_lens is not None, "cross attention needs encoder_lens"
        seq_lens, encoder_lens, is_causal = encoder_lens, None, False

    counts, extends = seq_lens.tolist(), extend_seq_lens.tolist()
    trees = None if tree_mask is None else _tree_blocks(tree_mask, counts, extends)
    batchable = (
        len(counts) > 1
        and sliding_window_size <= 0
        and (is_causal or trees is not None)
        and 0 < min(extends) == max(extends) <= _MAX_BATCHED_EXTEND
        and padding_is_small(counts)
    )
    if batchable:
        slots = cache.slots_of_batch(
            req_pool_indices, encoder_lens, seq_lens, max(counts)
        )
        visible = _visible_in_batch(seq_lens, max(counts), extends[0], trees)
        num_tokens = sum(extends)  # rows after these belong to no request
        query = q_extend[:num_tokens].unflatten(0, (-1, extends[0]))
        attended = cache.attend(query, slots, visible, config)
        o_extend[:num_tokens] = attended.flatten(0, 1)
        return

    starts = extend_start_loc.tolist()
    rows = req_pool_indices.tolist()
    offsets = [0] * len(rows) if encoder_lens is None else encoder_lens.tolist()
    for i, (row, count, extend) in enumerate(zip(rows, counts, extends, strict=True)):
        if extend == 0:
            continue
        query = q_extend[starts[i] : starts[i] + extend].unsqueeze(0)
        output = o_extend[starts[i] : starts[i] + extend]
        slots = req_to_token[row, offsets[i] : offsets[i] + count].unsqueeze(0)
        plain = logit_cap <= 0 and sinks is None and sliding_window_size <= 0
        if plain and is_causal and trees is None and count == extend:
            keys = gather_rows(k_buffer, slots, query.dtype, k_scale)
            values = gather_rows(v_buffer, slots, query.dtype, v_scale)
            output.copy_(attend_causally(query, keys, values, sm_scale)[0])
            continue
        causal = is_causal and trees is None
        visible = _visible(count, extend, causal, sliding_window_size)
        if trees is not None:
            visible[:, count - extend :] &= trees[i]
        attended = cache.attend(query, slots, visible.unsqueeze(0), config)
        output.copy_(attended[0])


def _visible(
    num_keys: int, num_tokens: int, is_causal: bool, sliding_window_size: int
) -> torch.Tensor:
    """bool [num_tokens, num_keys] for the last tokens of a sequence."""
    visible = torch.ones(num_tokens, num_keys, dtype=torch.bool)
    last = num_keys - num_tokens
    if is_causal:
        visible = visible.tril_(last)
    if sliding_window_size > 0:
        visible = visible.triu_(last - sliding_window_size + 1)
    return visible


def _tree_blocks(
    tree_mask: torch.Tensor, counts: list[int], extends: list[int]
) -> list[torch.Tensor]:
    """The square mask of every request's new tokens, from either mask layout."""
    flat = tree_mask.flatten().to(torch.bool)
    only_new = flat.numel() == sum(extend * extend for extend in extends)
    blocks, offset = [], 0
    for count, extend in zip(counts, extends, strict=True):
        width = extend if only_new else count
        block = flat[offset : offset + extend * width].view(extend, width)
        blocks.append(block[:, width - extend :])
        offset += extend * width
    return blocks


def _visible_in_batch(
    seq_lens: torch.Tensor,
    max_keys: int,
    num_tokens: int,
    trees: list[torch.Tensor] | None,
) -> torch.Tensor:
    """bool [batch, num_tokens, max_keys]: the prefix, and new tokens as they may."""
    prefix = (seq_lens - num_tokens)[:, None, None]
    key = torch.arange(max_keys)
    token = torch.arange(num_tokens)
    if trees is None:
        return key <= prefix + token[:, None]
    visible = (key < prefix).expand(-1, num_tokens, -1).contiguous()
    columns = (prefix + token).expand(-1, num_tokens, -1)
    return visible.scatter_(2, columns, torch.stack(trees))
