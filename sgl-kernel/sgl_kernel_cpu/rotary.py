"""Rotary position embeddings of text (1-D and multimodal) and of vision."""

from collections.abc import Sequence
from functools import lru_cache

import torch

from .registry import kernel, like_first


def _rotate_(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, is_neox: bool
) -> None:
    """Rotate the first `2 * cos.shape[-1]` channels of every head in place.

    Args:
        x: [num_tokens, num_heads, head_size], written.
        cos: [num_tokens, rotary_dim / 2].
        sin: [num_tokens, rotary_dim / 2].
        is_neox: pairs are (i, i + rotary_dim / 2), otherwise (2 i, 2 i + 1).
    """
    half = cos.shape[-1]
    if is_neox:
        first, second = x[..., :half], x[..., half : 2 * half]
    else:
        first, second = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
    cos, sin = cos.unsqueeze(1).float(), sin.unsqueeze(1).float()
    a, b = first.float(), second.float()
    rotated_first = a * cos - b * sin
    second.copy_(b * cos + a * sin)
    first.copy_(rotated_first)


def _fake_rotary(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    return like_first(query), like_first(key)


@kernel(
    "rotary_embedding_cpu(Tensor positions, Tensor query, Tensor key, int head_size, "
    "Tensor cos_sin_cache, bool is_neox) -> (Tensor, Tensor)",
    fake=_fake_rotary,
)
def rotary_embedding_cpu(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotated copies of query and key.

    Args:
        positions: [num_tokens] int.
        query: [num_tokens, num_heads * head_size], or with heads (and batch) apart.
        key: [num_tokens, num_kv_heads * head_size], likewise.
        cos_sin_cache: [max_position, rotary_dim], halves [cos | sin].
    """
    cos, sin = cos_sin_cache.index_select(0, positions.flatten()).chunk(2, dim=-1)
    rotated = []
    for x in (query, key):
        x = x.clone(memory_format=torch.contiguous_format)
        heads = x.unflatten(-1, (-1, head_size)) if x.dim() == 2 else x.flatten(0, -3)
        _rotate_(heads, cos, sin, is_neox)
        rotated.append(x)
    return rotated[0], rotated[1]


@lru_cache(maxsize=16)
def _axis_of_channel(section: tuple[int, ...], interleaved: bool) -> torch.Tensor:
    """[rotary_dim / 2] int64: the position axis (0 t, 1 h, 2 w) of each channel.

    Interleaved channels run t h w t h w ... for as long as an axis has channels left,
    then t; the layout is that of Qwen3-VL (transformers, `apply_interleaved_mrope`).
    """
    if not interleaved:
        return torch.repeat_interleave(
            torch.arange(len(section)), torch.tensor(section)
        )
    axes = torch.zeros(sum(section), dtype=torch.int64)
    for axis in range(1, len(section)):
        axes[axis : section[axis] * 3 : 3] = axis
    return axes


@kernel(
    "multimodal_rotary_embedding_cpu(Tensor positions, Tensor(a!) query, "
    "Tensor(b!) key, int head_size, Tensor cos_sin_cache, int[]? mrope_section, "
    "bool mrope_interleaved, bool is_neox) -> ()"
)
def multimodal_rotary_embedding_cpu(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    mrope_section: Sequence[int] | None,
    mrope_interleaved: bool,
    is_neox: bool,
) -> None:
    """Rotate query and key in place.

    Args:
        positions: [num_tokens], or [3, num_tokens] for time, height and width.
        query: [num_tokens, num_heads * head_size], written.
        key: [num_tokens, num_kv_heads * head_size], written.
        cos_sin_cache: [max_position, rotary_dim], halves [cos | sin].
        mrope_section: channels of each axis, rotary_dim / 2 in all.
    """
    if positions.dim() == 1:
        cos, sin = cos_sin_cache.index_select(0, positions).chunk(2, dim=-1)
    else:
        if mrope_section is None:
            raise ValueError("positions of three axes need an mrope_section.")
        axes = _axis_of_channel(tuple(mrope_section), mrope_interleaved)
        cos_table, sin_table = cos_sin_cache.chunk(2, dim=-1)
        channel_positions = positions.index_select(0, axes).t().to(torch.int64)
        cos = cos_table.gather(0, channel_positions)
        sin = sin_table.gather(0, channel_positions)
    for x in (query, key):
        _rotate_(x.unflatten(-1, (-1, head_size)), cos, sin, is_neox)


def _fake_vision_rotary(
    query: torch.Tensor,
    key: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    unsqueeze_dim: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:
    return like_first(query), like_first(key)


@kernel(
    "apply_rotary_pos_emb_cpu(Tensor query, Tensor key, Tensor cos, Tensor sin, "
    "int unsqueeze_dim=1) -> (Tensor, Tensor)",
    fake=_fake_vision_rotary,
)
def apply_rotary_pos_emb_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    unsqueeze_dim: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotated copies of query and key, [num_tokens, num_heads, head_size] each.

    Args:
        cos: [num_tokens, head_size], both halves alike.
        sin: [num_tokens, head_size], both halves alike.
        unsqueeze_dim: the head dimension of query and key.
    """
    cos, sin = (
        cos.unsqueeze(unsqueeze_dim).float(),
        sin.unsqueeze(unsqueeze_dim).float(),
    )

    def rotate(x: torch.Tensor) -> torch.Tensor:
        first, second = x.float().chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        return (x.float() * cos + turned * sin).to(x.dtype)

    return rotate(query), rotate(key)
