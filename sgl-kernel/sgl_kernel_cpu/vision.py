"""Patch embedding and attention of the vision encoder."""

import torch
import torch.nn.functional as F

from .registry import kernel


@kernel(
    "conv3d_embed_weight_pack(Tensor(a) weight) -> Tensor(a)",
    fake=lambda weight: weight,
)
def conv3d_embed_weight_pack(weight: torch.Tensor) -> torch.Tensor:
    """The weight itself, [out_channels, in_channels, time, height, width]."""
    return weight


def _fake_embed(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    is_vnni: bool = True,
) -> torch.Tensor:
    return input.new_empty((input.shape[0], weight.shape[0]))


@kernel(
    "conv3d_embed_cpu(Tensor input, Tensor weight, Tensor? bias, bool is_vnni=True) "
    "-> Tensor",
    fake=_fake_embed,
)
def conv3d_embed_cpu(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    is_vnni: bool = True,
) -> torch.Tensor:
    """Embed patches by a convolution as large as a patch, which is a product.

    Args:
        input: [num_patches, in_channels, time, height, width], one patch each.
        weight: [out_channels, in_channels, time, height, width].
        bias: [out_channels].

    Returns:
        [num_patches, out_channels].
    """
    bias = None if bias is None else bias.to(input.dtype)
    return F.linear(input.flatten(1), weight.flatten(1), bias)


def _fake_flash(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *args: object, **kwargs: object
) -> torch.Tensor:
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


@kernel(
    "flash_attn_varlen_func(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, "
    "Tensor cu_seqlens_k, int max_seqlen_q, int max_seqlen_k, bool causal=False, "
    "float? softmax_scale=None) -> Tensor",
    fake=_fake_flash,
)
def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool = False,
    softmax_scale: float | None = None,
) -> torch.Tensor:
    """Attention within each of several packed sequences.

    Args:
        q: [num_queries, num_heads, head_dim].
        k: [num_keys, num_kv_heads, head_dim].
        v: [num_keys, num_kv_heads, v_head_dim].
        cu_seqlens_q: [batch + 1] int, boundaries of the queries.
        cu_seqlens_k: [batch + 1] int, boundaries of the keys.
        causal: query i of a sequence sees its keys 0 to i.
        softmax_scale: 1 / sqrt(head_dim) by default.

    Returns:
        [num_queries, num_heads, v_head_dim].
    """
    output = q.new_empty((*q.shape[:-1], v.shape[-1]))
    query_bounds, key_bounds = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for i in range(len(query_bounds) - 1):
        queries = slice(query_bounds[i], query_bounds[i + 1])
        keys = slice(key_bounds[i], key_bounds[i + 1])
        if queries.start == queries.stop:
            continue
        attended = F.scaled_dot_product_attention(
            q[queries].transpose(0, 1).unsqueeze(0),
            k[keys].transpose(0, 1).unsqueeze(0),
            v[keys].transpose(0, 1).unsqueeze(0),
            is_causal=causal,
            scale=softmax_scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        output[queries] = attended[0].transpose(0, 1)
    return output
