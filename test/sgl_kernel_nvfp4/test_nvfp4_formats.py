"""Packing, the 128x4 layout, and e2m1 rounding."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sgl_kernel_nvfp4.formats import (
    E2M1_VALUES,
    decode_e2m1,
    encode_e2m1,
    pack_codes,
    pad_codes,
    scale_shape,
    swizzle_scales,
    unpack_codes,
    unswizzle_scales,
)


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 300), blocks=st.integers(1, 40))
def test_swizzled_scales_lie_where_the_layout_says(rows, blocks):
    scales = torch.randint(0, 256, (rows, blocks), dtype=torch.uint8)
    swizzled = swizzle_scales(scales)
    flat = swizzled.flatten()
    row, block = torch.meshgrid(torch.arange(rows), torch.arange(blocks), indexing="ij")
    tile = (row // 128) * -(-blocks // 4) + block // 4
    offset = tile * 512 + (row % 32) * 16 + (row % 128 // 32) * 4 + block % 4
    assert torch.equal(flat[offset], scales)
    assert flat.long().sum() == scales.long().sum()  # padding is zero


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 300), blocks=st.integers(1, 40))
def test_unswizzle_undoes_swizzle(rows, blocks):
    scales = torch.rand(2, rows, blocks).to(torch.float8_e4m3fn)
    swizzled = swizzle_scales(scales)
    assert tuple(swizzled.shape[1:]) == scale_shape(rows, blocks * 16)
    back = unswizzle_scales(swizzled, rows, blocks * 16)
    assert torch.equal(back.view(torch.uint8), scales.view(torch.uint8))


def test_unswizzle_names_both_shapes_when_they_differ():
    with pytest.raises(ValueError, match=r"\[128, 8\], got \[128, 4\]"):
        unswizzle_scales(torch.zeros(128, 4), 5, 128)


def test_codes_survive_packing():
    codes = torch.randint(0, 16, (3, 48))
    assert torch.equal(unpack_codes(pack_codes(codes)), codes)
    assert pack_codes(torch.tensor([[1, 2]])).item() == 0x21


@pytest.mark.parametrize(("k", "width"), [(16, 16), (32, 16), (48, 32), (64, 32)])
def test_padded_codes_fill_words_with_zeros(k, width):
    padded = pad_codes(torch.full((2, k // 2), 255, dtype=torch.uint8))
    assert padded.shape == (2, width)
    assert not padded[:, k // 2 :].any()


def test_every_code_is_nearest_to_its_value():
    codes = torch.arange(16)
    values = decode_e2m1(codes)
    assert torch.equal(encode_e2m1(values), codes)
    near = torch.linspace(-7, 7, 5001, dtype=torch.float64)
    grid = torch.tensor(E2M1_VALUES, dtype=torch.float64)
    distance = (near.abs()[:, None] - grid).abs().amin(-1)
    error = (decode_e2m1(encode_e2m1(near)).abs() - near.abs()).abs()
    assert torch.allclose(error, distance)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0.25, 0),
        (0.75, 2),
        (1.25, 2),
        (1.75, 4),
        (2.5, 4),
        (3.5, 6),
        (5.0, 6),
        (float("inf"), 7),
        (float("-inf"), 15),
        (float("nan"), 7),
        (-0.0, 8),
    ],
)
def test_ties_go_to_the_even_code_and_infinities_saturate(value, code):
    assert encode_e2m1(torch.tensor([value])).item() == code


def test_packing_agrees_with_compressed_tensors():
    nvfp4 = pytest.importorskip("compressed_tensors.compressors.nvfp4.helpers")
    codes = torch.randint(0, 16, (4, 64))
    codes[codes == 8] = 0  # it has no negative zero
    theirs = nvfp4.pack_fp4_to_uint8(decode_e2m1(codes, torch.float32))
    assert torch.equal(theirs, pack_codes(codes))
