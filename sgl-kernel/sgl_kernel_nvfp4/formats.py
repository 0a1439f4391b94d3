"""NVFP4 in memory: packed e2m1 codes, block scales, and the 128x4 scale layout.

A row of K values is K/2 bytes, the even element in the low nibble, and K/16 scales in
e4m3. A value is code * block scale, then times one float32 scale of the tensor.
"""

from __future__ import annotations

import torch

BLOCK = 16
"""Elements that share a scale."""

E2M1_MAX = 6.0
E4M3_MAX = 448.0
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

CODE_ALIGNMENT = 32
"""Elements to which a row of codes is padded: kernels load 16 bytes at a time."""


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def scale_shape(rows: int, k: int) -> tuple[int, int]:
    """Shape of the swizzled scales of a [rows, k] matrix: whole tiles of 128 x 4."""
    return round_up(rows, 128), round_up(k // BLOCK, 4)


def swizzle_scales(scales: torch.Tensor) -> torch.Tensor:
    """Scales [..., R, C] in row-major order to the 128x4 layout, padded with zeros.

    Returns the same dtype, shape [..., round_up(R, 128), round_up(C, 4)], contiguous.
    The layout is the one of cuBLAS block scaling, which FlashInfer and SGLang share.
    """
    *batch, rows, columns = scales.shape
    padded_rows, padded_columns = round_up(rows, 128), round_up(columns, 4)
    raw = scales.view(torch.uint8)
    raw = torch.nn.functional.pad(
        raw, (0, padded_columns - columns, 0, padded_rows - rows)
    )
    tiles = raw.reshape(*batch, padded_rows // 128, 4, 32, padded_columns // 4, 4)
    tiles = tiles.movedim(-2, -4).transpose(-2, -3)
    tiles = tiles.reshape(*batch, padded_rows, padded_columns).contiguous()
    return tiles.view(scales.dtype)


def unswizzle_scales(scales: torch.Tensor, rows: int, k: int) -> torch.Tensor:
    """Undo ``swizzle_scales``: [..., rows, k / 16] in row-major order."""
    *batch, padded_rows, padded_columns = scales.shape
    if (padded_rows, padded_columns) != scale_shape(rows, k):
        raise ValueError(
            f"swizzled scales of a [{rows}, {k}] matrix have shape "
            f"{list(scale_shape(rows, k))}, got {[padded_rows, padded_columns]}"
        )
    raw = scales.contiguous().view(torch.uint8)
    tiles = raw.reshape(*batch, padded_rows // 128, padded_columns // 4, 32, 4, 4)
    tiles = tiles.transpose(-2, -3).movedim(-4, -2)
    raw = tiles.reshape(*batch, padded_rows, padded_columns)
    return raw[..., :rows, : k // BLOCK].contiguous().view(scales.dtype)


def pad_codes(codes: torch.Tensor) -> torch.Tensor:
    """Codes [..., R, K/2] with rows zero-padded to 16 bytes; the input if they are."""
    missing = -codes.shape[-1] % (CODE_ALIGNMENT // 2)
    return torch.nn.functional.pad(codes, (0, missing)) if missing else codes


def pack_codes(codes: torch.Tensor) -> torch.Tensor:
    """uint8 [..., K/2] of integer 4-bit codes [..., K]."""
    codes = codes.to(torch.uint8)
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_codes(packed: torch.Tensor) -> torch.Tensor:
    """int64 4-bit codes [..., K] of uint8 [..., K/2]."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2).long()


def decode_e2m1(
    codes: torch.Tensor, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """Values of 4-bit codes, bit 3 being the sign."""
    values = torch.tensor(E2M1_VALUES, dtype=dtype, device=codes.device)
    return torch.cat((values, -values))[codes]


def encode_e2m1(values: torch.Tensor) -> torch.Tensor:
    """int64 codes nearest to ``values``: ties to the even code, saturating at 6.

    NaN gives 7 (6.0), as PTX ``cvt.rn.satfinite.e2m1x2.f32`` does.
    """
    grid = torch.tensor(E2M1_VALUES, dtype=values.dtype, device=values.device)
    middle = (grid[1:] + grid[:-1]) / 2
    size = values.abs().contiguous()
    down = torch.bucketize(size, middle, right=False)
    up = torch.bucketize(size, middle, right=True)
    code = torch.where(down % 2 == 0, down, up)
    code = code | (torch.signbit(values).long() << 3)
    return torch.where(values.isnan(), 7, code)
