"""Errors for arguments that no kernel could take, and repairs for those it could."""

from __future__ import annotations

import torch

from sgl_kernel_nvfp4.formats import BLOCK, pad_codes, scale_shape

HALF_TYPES = (torch.bfloat16, torch.float16)


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def codes(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """``tensor`` as uint8 [..., R, K/2] that 16-byte loads can read.

    Rows that are not a multiple of 16 bytes are copied into padded ones; a weight
    should go through ``pad_codes`` once instead.
    """
    require(
        tensor.dtype == torch.uint8 and tensor.dim() >= 2,
        f"{name} must be uint8 codes [rows, K/2], got {tensor.dtype} "
        f"{list(tensor.shape)}",
    )
    require(
        tensor.shape[-1] % (BLOCK // 2) == 0 and tensor.shape[-1] > 0,
        f"{name} has {tensor.shape[-1]} bytes in a row, so K = {2 * tensor.shape[-1]}; "
        f"K must be a positive multiple of {BLOCK}",
    )
    tensor = pad_codes(tensor)
    return tensor if _loads_in_words(tensor) else tensor.contiguous()


def rows(tensor: torch.Tensor, name: str) -> None:
    """Check that a weight [..., N, K/2] has a multiple of 16 rows."""
    n = tensor.shape[-2]
    require(n % BLOCK == 0, f"{name} has N = {n} rows; N must be a multiple of {BLOCK}")


def _loads_in_words(tensor: torch.Tensor) -> bool:
    """Whether every row starts at a multiple of 16 bytes and is dense."""
    word = 16 // tensor.element_size()
    return (
        tensor.stride(-1) == 1
        and all(stride % word == 0 for stride in tensor.stride()[:-1])
        and tensor.data_ptr() % 16 == 0
    )


def values(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """``tensor`` as float16 or bfloat16 [M, K] that 16-byte loads can read."""
    require(
        tensor.dtype in HALF_TYPES,
        f"{name} must be float16 or bfloat16, got {tensor.dtype}",
    )
    require(
        tensor.dim() >= 1 and tensor.shape[-1] % BLOCK == 0 and tensor.shape[-1] > 0,
        f"{name} has shape {list(tensor.shape)}; its last dimension must be a positive "
        f"multiple of {BLOCK}",
    )
    tensor = tensor.reshape(-1, tensor.shape[-1])
    return tensor if _loads_in_words(tensor) else tensor.contiguous()


def swizzled_scale(
    tensor: torch.Tensor, name: str, rows: int, k: int, batch: tuple[int, ...] = ()
) -> torch.Tensor:
    """``tensor`` as float8_e4m3fn [*batch, round_up(rows, 128), round_up(k/16, 4)].

    uint8 is taken as the same bytes: Triton would read it as e8m0, in silence.
    """
    require(
        tensor.dtype in (torch.uint8, torch.float8_e4m3fn),
        f"{name} must be float8_e4m3fn scales (or their bytes), got {tensor.dtype}",
    )
    shape = (*batch, *scale_shape(rows, k))
    count = 1
    for size in shape:
        count *= size
    require(
        tensor.numel() == count,
        f"{name} has shape {list(tensor.shape)}; the 128x4 scales of {rows} rows of "
        f"K = {k} have shape {list(shape)} (see swizzle_scales)",
    )
    tensor = tensor.contiguous().view(torch.float8_e4m3fn).reshape(shape)
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def factor(tensor: torch.Tensor, name: str, count: int = 1) -> torch.Tensor:
    """``tensor`` as float32 [count]."""
    require(
        tensor.dtype == torch.float32 and tensor.numel() == count,
        f"{name} must be float32 with {count} element(s), got {tensor.dtype} "
        f"{list(tensor.shape)}",
    )
    return tensor.reshape(count)


def same_device(name: str, first: torch.Tensor, *others: torch.Tensor) -> None:
    for other in others:
        require(
            other.device == first.device,
            f"{name}: tensors on {first.device} and {other.device}",
        )
