"""Attention of one new token per request."""

import torch

from .attention import AttentionConfig, PagedCache, padding_is_small
from .cache import store_cache_cpu
from .registry import kernel


@kernel(
    "decode_attention_cpu(Tensor query, Tensor(a!) k_cache, Tensor(b!) v_cache, "
    "float? k_scale, float? v_scale, Tensor(c!) output, Tensor? key, Tensor? value, "
    "Tensor? loc, Tensor attn_logits, Tensor req_to_token, Tensor req_pool_indices, "
    "Tensor seq_lens, float sm_scale, float logit_cap, bool is_cross_attn=False, "
    "int sliding_window_size=0, Tensor? encoder_lens=None, Tensor? sinks=None) -> ()"
)
def decode_attention_cpu(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: float | None,
    v_scale: float | None,
    output: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    loc: torch.Tensor | None,
    attn_logits: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool = False,
    sliding_window_size: int = 0,
    encoder_lens: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
) -> None:
    """Store the new token of every request and attend from it.

    Args:
        query: [batch, num_heads, head_dim].
        k_cache: [num_slots, num_kv_heads, head_dim], written at `loc`.
        v_cache: [num_slots, num_kv_heads, v_head_dim], written at `loc`.
        k_scale: dequantization factor of a float8_e4m3fn key cache.
        v_scale: dequantization factor of a float8_e4m3fn value cache.
        output: [batch, num_heads, v_head_dim], written; 0 for a request of no keys.
        key: [batch, num_kv_heads, head_dim], or None where it is stored already.
        value: [batch, num_kv_heads, v_head_dim], or None likewise.
        loc: [batch] int, slots of the new tokens.
        attn_logits: scratch of the compiled kernel, unused.
        req_to_token: [max_requests, max_context] int, slots by position.
        req_pool_indices: [batch] int64, rows of `req_to_token`.
        seq_lens: [batch] int64, tokens with the new one.
        logit_cap: 0 for none.
        is_cross_attn: attend to the encoder's tokens instead.
        sliding_window_size: keys that a token sees, itself included; 0 for all.
        encoder_lens: [batch] int64, encoder tokens that lead each row.
        sinks: [num_heads] logits without a value.
    """
    if key is not None and value is not None and loc is not None:
        store_cache_cpu(key, value, k_cache, v_cache, loc, 0)
    cache = PagedCache(k_cache, v_cache, k_scale, v_scale, req_to_token)
    config = AttentionConfig(sm_scale, logit_cap, sinks)
    first, num_keys = encoder_lens, seq_lens
    if is_cross_attn:
        assert encoder_lens is not None, "cross attention needs encoder_lens"
        first, num_keys = None, encoder_lens
    elif sliding_window_size > 0:
        num_keys = seq_lens.clamp(max=sliding_window_size)
        hidden = seq_lens - num_keys
        first = hidden if first is None else first + hidden

    counts = num_keys.tolist()
    query = query.unsqueeze(1)
    if len(counts) > 1 and padding_is_small(counts):
        longest = max(counts)
        slots = cache.slots_of_batch(req_pool_indices, first, num_keys, longest)
        visible = None
        if min(counts) < longest:
            visible = (torch.arange(longest) < num_keys[:, None]).unsqueeze(1)
        output.copy_(cache.attend(query, slots, visible, config).squeeze(1))
        if min(counts) == 0:
            output[num_keys == 0] = 0
        return
    starts = [0] * len(counts) if first is None else first.tolist()
    rows = req_pool_indices.tolist()
    for i, (row, start, count) in enumerate(zip(rows, starts, counts, strict=True)):
        if count == 0:
            output[i].zero_()
            continue
        slots = req_to_token[row, start : start + count].unsqueeze(0)
        attended = cache.attend(query[i : i + 1], slots, None, config)
        output[i].copy_(attended[0, 0])
