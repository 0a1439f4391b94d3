"""What one safetensors file holds, read from its header alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from sglang.srt.arg_groups.launch_error import LaunchError

# Bits of one element, by the dtype code of the safetensors format.
DTYPE_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "F64": 64,
    "C64": 64,
}

_GIT_LFS_MAGIC = b"version https://git-lfs"


class CheckpointError(LaunchError):
    """A checkpoint's files cannot be understood; the message names file and way out."""


class NoSafetensorsError(CheckpointError):
    """A path holds no safetensors weights at all; another format may be there."""


@dataclass(frozen=True)
class HeadTensor:
    """A tensor as its shard's header describes it.

    `dtype` (a safetensors code such as "BF16") and `shape` are None when only the index
    was at hand.
    """

    name: str
    shard: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    @property
    def num_bytes(self) -> int | None:
        """Bytes of the tensor's data; None when its shape is not known."""
        if self.shape is None or self.dtype not in DTYPE_BITS:
            return None
        return math.prod(self.shape) * DTYPE_BITS[self.dtype] // 8


def read_header(path: Path) -> dict[str, HeadTensor]:
    """The tensors of the safetensors file `path`, by name; no data is read.

    Raises:
        CheckpointError: the file is missing, unreadable, truncated, or not safetensors.
    """
    try:
        with safe_open(path, framework="np") as shard:
            return {
                name: _describe(name, path.name, shard.get_slice(name))
                for name in shard.keys()  # noqa: SIM118 (not a dict)
            }
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist: download it again.") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(_explain_unreadable(path, error)) from error


def _describe(name: str, shard: str, tensor: Any) -> HeadTensor:
    return HeadTensor(name, shard, tensor.get_dtype(), tuple(tensor.get_shape()))


def _explain_unreadable(path: Path, error: Exception) -> str:
    if not path.is_file():
        return f"{path} is not a file: {error}."
    try:
        with path.open("rb") as file:
            start = file.read(len(_GIT_LFS_MAGIC))
    except OSError:
        return f"{path} cannot be read: {error}."
    if start == _GIT_LFS_MAGIC:
        return (
            f"{path} is a Git LFS pointer, not the weights: run `git lfs pull` in "
            f"{path.parent}."
        )
    return (
        f"{path} ({path.stat().st_size:,} bytes) is no complete safetensors file: "
        f"{error}. The download or the conversion was cut short: get the file again."
    )
