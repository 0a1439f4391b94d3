"""Number formats: bit patterns to float32 arrays and back."""

from __future__ import annotations

import numpy as np
import torch

Array = np.ndarray

E2M1 = np.array(
    [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32
)
E2M1_PAIRS = np.stack([E2M1[np.arange(256) & 15], E2M1[np.arange(256) >> 4]], axis=-1)
"""float32 [256, 2]: the values in a byte, the low nibble first."""

E2M1_QUADS = np.concatenate(
    [E2M1_PAIRS[np.arange(65536) & 255], E2M1_PAIRS[np.arange(65536) >> 8]], axis=-1
)
"""float32 [65536, 4]: the values in two bytes."""

E4M3 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()


def decode_bfloat16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def encode_bfloat16(values: Array) -> Array:
    """Nearest, ties to even; NaN becomes 0x7FFF."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def decode_float16(bits: Array) -> Array:
    return bits.view(np.float16).astype(np.float32)


def encode_float16(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32).astype(np.float16).view(np.uint16)


def encode_e4m3(values: Array) -> Array:
    """uint8, nearest, ties to even; saturates at 448 (.satfinite); NaN is 0x7F."""
    finite = np.clip(np.nan_to_num(values, nan=0.0, posinf=448, neginf=-448), -448, 448)
    rounded = torch.from_numpy(np.ascontiguousarray(finite, np.float32))
    bits = rounded.to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    return np.where(np.isnan(values), 0x7F, bits).astype(np.uint8)


def encode_e2m1(values: Array) -> Array:
    """uint8 codes, nearest, ties to even; saturates at 6; NaN is +6 (.satfinite)."""
    size = np.abs(values)
    code = np.zeros(values.shape, np.uint8)
    for middle, tie_goes_up in zip(
        (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0), (0, 1, 0, 1, 0, 1, 0), strict=True
    ):
        code += (size >= middle) if tie_goes_up else (size > middle)
    code |= np.signbit(values).astype(np.uint8) << 3
    return np.where(np.isnan(values), 7, code).astype(np.uint8)


DECODE = {
    "f32": lambda bits: bits.view(np.float32),
    "f16": decode_float16,
    "bf16": decode_bfloat16,
}
ENCODE = {
    "f32": lambda values: np.ascontiguousarray(values, np.float32).view(np.uint32),
    "f16": encode_float16,
    "bf16": encode_bfloat16,
}
