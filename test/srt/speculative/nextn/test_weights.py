"""Reading the head: which files are opened, and what comes out of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from head_files import dense_head, trunk
from safetensors import safe_open
from safetensors.torch import save_file

from sglang.srt.speculative.nextn import weights
from sglang.srt.speculative.nextn.checkpoint import read_head_checkpoint
from sglang.srt.speculative.nextn.weights import iterate_head_weights


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of random values whose second shard is the head."""
    generator = torch.Generator().manual_seed(0)
    weight_map = {}
    for shard, tensors in (("1.safetensors", trunk()), ("2.safetensors", dense_head())):
        values = {
            name: torch.randn(shape, generator=generator).bfloat16()
            for name, (_, shape) in tensors.items()
        }
        save_file(values, tmp_path / shard)
        weight_map.update(dict.fromkeys(tensors, shard))
    index = {"metadata": {}, "weight_map": weight_map}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


@pytest.mark.parametrize("disable_mmap", [False, True])
def test_every_tensor_of_the_head_is_read_once_and_nothing_else(
    folder: Path, disable_mmap: bool
):
    checkpoint = read_head_checkpoint(folder)
    names = [name for name, _ in read(checkpoint, disable_mmap)]
    assert sorted(names) == sorted(dense_head())


@pytest.mark.parametrize("disable_mmap", [False, True])
def test_the_values_are_those_of_the_file(folder: Path, disable_mmap: bool):
    checkpoint = read_head_checkpoint(folder)
    for name, tensor in read(checkpoint, disable_mmap):
        shard = folder / checkpoint.tensors[name].shard
        with safe_open(shard, framework="pt") as file:
            expected = file.get_tensor(name)
        assert tensor.dtype == expected.dtype
        assert torch.equal(tensor, expected)


def test_only_shards_with_the_head_are_opened_and_each_of_them_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    opened: list[str] = []

    def counting_open(path: Path, **arguments: object):
        opened.append(path.name)
        return safe_open(path, **arguments)

    monkeypatch.setattr(weights, "safe_open", counting_open)
    checkpoint = read_head_checkpoint(folder)
    list(iterate_head_weights(checkpoint))
    assert sorted(opened) == sorted(checkpoint.head_shards)
    assert len(opened) < len(checkpoint.shards)


def test_without_mmap_the_bytes_read_are_the_heads(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    checkpoint = read_head_checkpoint(folder)
    read_bytes = 0
    original = Path.open

    class Counting:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

        def seek(self, offset):
            return self.file.seek(offset)

        def read(self, size):
            nonlocal read_bytes
            read_bytes += size
            return self.file.read(size)

    monkeypatch.setattr(Path, "open", lambda self, mode: Counting(original(self, mode)))
    list(iterate_head_weights(checkpoint, disable_mmap=True))
    headers = 8 * len(checkpoint.head_shards) + 4096
    assert read_bytes <= checkpoint.num_bytes + headers


def read(checkpoint, disable_mmap: bool):
    return iterate_head_weights(checkpoint, disable_mmap=disable_mmap)
