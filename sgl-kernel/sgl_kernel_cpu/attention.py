"""Grouped-query attention over keys and values that a cache's slots select."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .cache import gather_rows

# Requests are padded to one batch while padding at most doubles the keys read.
_MAX_PADDING = 2


@dataclass(frozen=True)
class AttentionConfig:
    """What a layer does to its logits.

    Attributes:
        sm_scale: factor of query times key.
        logit_cap: 0 for none, otherwise logits become cap * tanh(logits / cap).
        sinks: [num_heads], one more logit per head that has no value.
    """

    sm_scale: float
    logit_cap: float
    sinks: torch.Tensor | None


@dataclass(frozen=True)
class PagedCache:
    """A layer's keys and values, with the slots of every request.

    Attributes:
        keys: [num_slots, num_kv_heads, head_dim].
        values: [num_slots, num_kv_heads, v_head_dim].
        k_scale: dequantization factor of a float8_e4m3fn key cache.
        v_scale: dequantization factor of a float8_e4m3fn value cache.
        req_to_token: [max_requests, max_context] int, slots by position.
    """

    keys: torch.Tensor
    values: torch.Tensor
    k_scale: float | None
    v_scale: float | None
    req_to_token: torch.Tensor

    def attend(
        self,
        query: torch.Tensor,
        slots: torch.Tensor,
        visible: torch.Tensor | None,
        config: AttentionConfig,
    ) -> torch.Tensor:
        """`attend` from query to the rows at slots [batch, num_keys]."""
        keys = gather_rows(self.keys, slots, query.dtype, self.k_scale)
        values = gather_rows(self.values, slots, query.dtype, self.v_scale)
        return attend(query, keys, values, visible, config)

    def slots_of_batch(
        self,
        req_pool_indices: torch.Tensor,
        first: torch.Tensor | None,
        num_keys: torch.Tensor,
        max_keys: int,
    ) -> torch.Tensor:
        """Slots [batch, max_keys] from position `first` on, 0 where that is None.

        Positions past a request's keys repeat its last slot, so that padding can bring
        in nothing that belongs to another request.
        """
        column = torch.minimum(torch.arange(max_keys), num_keys[:, None] - 1)
        if first is not None:
            column = column + first[:, None]
        rows = self.req_to_token.index_select(0, req_pool_indices)
        return rows.gather(1, column.clamp_(min=0))


def padding_is_small(num_keys: list[int]) -> bool:
    """Whether requests of so many keys are worth one padded batch."""
    return len(num_keys) * max(num_keys) <= _MAX_PADDING * sum(num_keys)


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor | None,
    config: AttentionConfig,
) -> torch.Tensor:
    """Softmax attention.

    Args:
        query: [batch, num_tokens, num_heads, head_dim].
        keys: [batch, num_keys, num_kv_heads, head_dim].
        values: [batch, num_keys, num_kv_heads, v_head_dim].
        visible: bool [batch or 1, num_tokens or 1, num_keys], or None for all.

    Returns:
        [batch, num_tokens, num_heads, v_head_dim] in query's dtype.
    """
    batch, num_tokens, num_heads, head_dim = query.shape
    num_kv_heads = keys.shape[2]
    group = num_heads // num_kv_heads
    # The query heads of one KV head become rows, so that keys are never repeated.
    rows = query.reshape(batch, num_tokens, num_kv_heads, group, head_dim)
    rows = rows.transpose(1, 2).reshape(batch, num_kv_heads, -1, head_dim)
    keys, values = keys.transpose(1, 2), values.transpose(1, 2)
    if visible is not None:
        visible = visible.unsqueeze(1)
        if visible.shape[2] > 1 and group > 1:
            visible = visible.repeat_interleave(group, dim=2)
    if config.logit_cap > 0 or config.sinks is not None:
        out = _attend_explicitly(rows, keys, values, visible, config)
    else:
        out = F.scaled_dot_product_attention(
            rows, keys, values, attn_mask=visible, scale=config.sm_scale
        )
    out = out.view(batch, num_kv_heads, num_tokens, group, -1).transpose(1, 2)
    return out.reshape(batch, num_tokens, num_heads, -1)


def _attend_explicitly(
    rows: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor | None,
    config: AttentionConfig,
) -> torch.Tensor:
    """`attend` in float32 for caps and sinks, which PyTorch's fused form lacks.

    rows is [batch, num_kv_heads, num_tokens * group, head_dim]; keys and values have
    their head dimension second.
    """
    logits = (rows.float() @ keys.float().transpose(-1, -2)) * config.sm_scale
    if config.logit_cap > 0:
        logits = config.logit_cap * torch.tanh(logits / config.logit_cap)
    if visible is not None:
        logits = logits.masked_fill(~visible, float("-inf"))
    if config.sinks is not None:
        group = config.sinks.numel() // rows.shape[1]
        sinks = config.sinks.float().view(rows.shape[1], 1, group)
        sinks = sinks.expand(-1, rows.shape[2] // group, -1).reshape(
            *rows.shape[1:3], 1
        )
        logits = torch.cat((logits, sinks.expand(rows.shape[0], -1, -1, -1)), dim=-1)
    probabilities = logits.softmax(-1)[..., : keys.shape[2]]
    return (probabilities @ values.float()).to(rows.dtype)


def attend_causally(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, sm_scale: float
) -> torch.Tensor:
    """Attention of whole sequences over themselves; shapes as in `attend`."""
    out = F.scaled_dot_product_attention(
        query.transpose(1, 2),
        keys.transpose(1, 2),
        values.transpose(1, 2),
        is_causal=True,
        scale=sm_scale,
        enable_gqa=query.shape[2] != keys.shape[2],
    )
    return out.transpose(1, 2)
