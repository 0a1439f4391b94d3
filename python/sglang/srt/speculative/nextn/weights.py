"""Reads the head's tensors: only the shards that hold them, each opened once."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load

from sglang.srt.speculative.nextn.checkpoint import HeadCheckpoint


def iterate_head_weights(
    checkpoint: HeadCheckpoint, *, disable_mmap: bool = False
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name and the CPU tensor of everything in the head.

    Args:
        disable_mmap: read the tensors' bytes from the file instead of mapping it.
    """
    for shard in checkpoint.head_shards:
        names = sorted(
            tensor.name
            for tensor in checkpoint.tensors.values()
            if tensor.shard == shard
        )
        read = _read_bytes if disable_mmap else _read_mapped
        yield from read(checkpoint.root / shard, names)


def _read_mapped(path: Path, names: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
    with safe_open(path, framework="pt", device="cpu") as shard:
        for name in names:
            yield name, shard.get_tensor(name)


def _read_bytes(path: Path, names: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Read one tensor at a time, as a safetensors document of its own.

    Layout of a file: the header's length as a little-endian 64-bit number, the header
    as JSON, the data; ``data_offsets`` count from the end of the header.
    """
    with path.open("rb") as file:
        (header_length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_length))
        for name in names:
            start, end = header[name]["data_offsets"]
            file.seek(8 + header_length + start)
            alone = {name: {**header[name], "data_offsets": [0, end - start]}}
            encoded = json.dumps(alone).encode()
            document = struct.pack("<Q", len(encoded)) + encoded
            yield name, load(document + file.read(end - start))[name]
