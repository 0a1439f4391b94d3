import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.qwen3_5 import modeling_qwen3_5

ops = torch.ops.sgl_kernel
MAX_POSITION = 50


def cos_sin_table(rotary_dim):
    frequency = 100.0 ** -(torch.arange(0, rotary_dim, 2) / rotary_dim)
    angle = torch.arange(MAX_POSITION)[:, None] * frequency
    return torch.cat((angle.cos(), angle.sin()), dim=-1)


def rotate(x, angle_cos, angle_sin, head_size, is_neox):
    """Each channel pair as a complex number, turned by its angle."""
    heads = x.double().unflatten(-1, (-1, head_size)).clone()
    half = angle_cos.shape[-1]
    pairs = [(i, i + half) if is_neox else (2 * i, 2 * i + 1) for i in range(half)]
    for i, (a, b) in enumerate(pairs):
        turn = torch.complex(angle_cos[:, i].double(), angle_sin[:, i].double())
        turned = torch.complex(heads[..., a], heads[..., b]) * turn[:, None]
        heads[..., a], heads[..., b] = turned.real, turned.imag
    return heads.flatten(-2).to(x.dtype)


@given(
    num_tokens=st.integers(0, 4),
    rotary_half=st.integers(1, 4),
    rest=st.sampled_from([0, 2, 6]),
    is_neox=st.booleans(),
)
def test_text_positions_turn_the_leading_channels(
    num_tokens, rotary_half, rest, is_neox
):
    head_size = 2 * rotary_half + rest
    table = cos_sin_table(2 * rotary_half)
    positions = torch.randint(0, MAX_POSITION, (num_tokens,))
    q, k = torch.randn(num_tokens, 3 * head_size), torch.randn(num_tokens, head_size)
    cos, sin = table[positions].chunk(2, dim=-1)
    expected = [rotate(x, cos, sin, head_size, is_neox) for x in (q, k)]

    before = q.clone(), k.clone()
    out = ops.rotary_embedding_cpu(positions, q, k, head_size, table, is_neox)
    torch.testing.assert_close(list(out), expected)
    torch.testing.assert_close((q, k), before)
    ops.multimodal_rotary_embedding_cpu(
        positions, q, k, head_size, table, None, False, is_neox
    )
    torch.testing.assert_close([q, k], expected)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("section", [(4, 3, 3), (11, 11, 10), (2, 1, 1)])
def test_each_channel_takes_the_position_of_its_axis(section, interleaved):
    half = sum(section)
    head_size, table = 2 * half + 4, cos_sin_table(2 * half)
    positions = torch.randint(0, MAX_POSITION, (3, 6))
    if interleaved:
        axes = [i % 3 if i < 3 * section[i % 3] else 0 for i in range(half)]
    else:
        axes = [axis for axis, count in enumerate(section) for _ in range(count)]
    cos_table, sin_table = table.chunk(2, dim=-1)
    cos, sin = (
        torch.stack([t[positions[axis], i] for i, axis in enumerate(axes)], dim=-1)
        for t in (cos_table, sin_table)
    )
    q, k = torch.randn(6, 2 * head_size), torch.randn(6, head_size)
    expected = [rotate(x, cos, sin, head_size, True) for x in (q, k)]
    ops.multimodal_rotary_embedding_cpu(
        positions, q, k, head_size, table, list(section), interleaved, True
    )
    torch.testing.assert_close([q, k], expected)


def test_query_may_be_a_strided_part_of_the_projection():
    table, positions = cos_sin_table(8), torch.arange(5)
    qkv = torch.randn(5, 64)
    q, k, v = qkv.split([32, 16, 16], dim=-1)
    cos, sin = table[positions].chunk(2, dim=-1)
    expected = [rotate(x, cos, sin, 16, True) for x in (q, k)]
    untouched = v.clone()
    ops.multimodal_rotary_embedding_cpu(positions, q, k, 16, table, None, False, True)
    torch.testing.assert_close([q, k], expected)
    assert torch.equal(v, untouched)


def test_axes_without_a_section_are_an_error():
    q = torch.randn(2, 8)
    with pytest.raises(ValueError, match="mrope_section"):
        ops.multimodal_rotary_embedding_cpu(
            torch.zeros(3, 2, dtype=torch.int64),
            q,
            q.clone(),
            8,
            cos_sin_table(8),
            None,
            True,
            True,
        )


def test_vision_rotation_equals_transformers():
    q, k = torch.randn(7, 4, 16), torch.randn(7, 4, 16)
    angle = torch.randn(7, 8).repeat(1, 2)
    expected = modeling_qwen3_5.apply_rotary_pos_emb_vision(
        q, k, angle.cos(), angle.sin()
    )
    out = ops.apply_rotary_pos_emb_cpu(q, k, angle.cos(), angle.sin())
    torch.testing.assert_close(out, expected)
