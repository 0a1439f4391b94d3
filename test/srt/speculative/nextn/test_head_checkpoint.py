import json
import tempfile
from pathlib import Path

import pytest
import torch
from head_files import (
    bf16,
    dense_head,
    trunk,
    write_checkpoint,
    write_index,
    write_shard,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from sglang.srt.speculative.nextn import checkpoint as checkpoint_module
from sglang.srt.speculative.nextn.checkpoint import read_head_checkpoint
from sglang.srt.speculative.nextn.safetensors_header import (
    CheckpointError,
    NoSafetensorsError,
    read_header,
)


@pytest.fixture
def folder(tmp_path):
    return write_checkpoint(tmp_path, dense_head())


@pytest.fixture
def opened(monkeypatch):
    """Names of the shards that get opened, in order."""
    names = []

    def read(path):
        names.append(path.name)
        return read_header(path)

    monkeypatch.setattr(checkpoint_module, "read_header", read)
    return names


def facts(checkpoint):
    return {t.name: (t.dtype, t.shape) for t in checkpoint.tensors.values()}


def test_header_tells_name_dtype_shape_and_bytes(tmp_path):
    tensors = {"a": torch.zeros(2, 3, dtype=torch.bfloat16), "b": torch.zeros(())}
    save_file(tensors, tmp_path / "x.safetensors")
    header = read_header(tmp_path / "x.safetensors")
    assert {n: (t.dtype, t.shape, t.num_bytes) for n, t in header.items()} == {
        "a": ("BF16", (2, 3), 12),
        "b": ("F32", (), 4),
    }


def test_index_leads_to_the_head(folder):
    checkpoint = read_head_checkpoint(folder)
    assert facts(checkpoint) == dense_head()
    assert checkpoint.head_shards == ("model-2.safetensors",)
    assert checkpoint.shards == ("model-1.safetensors", "model-2.safetensors")
    assert checkpoint.warnings == ()


def test_only_shards_that_hold_the_head_are_opened(folder, opened):
    read_head_checkpoint(folder)
    assert opened == ["model-2.safetensors"]


def test_shared_tables_are_read_on_request(folder, opened):
    checkpoint = read_head_checkpoint(folder, read_shared=True)
    assert opened == ["model-1.safetensors", "model-2.safetensors"]
    assert {t.shape for t in checkpoint.shared.values()} == {(512, 128)}


def test_bytes_of_the_head_are_those_of_its_tensors(folder):
    parameters = sum(torch.Size(shape).numel() for _, shape in dense_head().values())
    assert read_head_checkpoint(folder).num_bytes == 2 * parameters


def test_single_file_needs_no_index(tmp_path):
    write_shard(tmp_path / "model.safetensors", trunk() | dense_head())
    checkpoint = read_head_checkpoint(tmp_path)
    assert facts(checkpoint) == dense_head()
    assert set(checkpoint.shared) == set(trunk()) - {"model.language_model.norm.weight"}


def test_shards_without_index_are_all_read_with_a_warning(tmp_path):
    write_shard(tmp_path / "a.safetensors", trunk())
    write_shard(tmp_path / "b.safetensors", dense_head())
    checkpoint = read_head_checkpoint(tmp_path)
    assert facts(checkpoint) == dense_head()
    assert "has no model.safetensors.index.json" in checkpoint.warnings[0]


def test_index_of_another_name_is_used(folder):
    (folder / "model.safetensors.index.json").rename(
        folder / "diffusion.safetensors.index.json"
    )
    assert facts(read_head_checkpoint(folder)) == dense_head()


def test_file_that_the_index_forgot_is_read_with_a_warning(tmp_path):
    write_shard(tmp_path / "model-1.safetensors", trunk())
    write_index(tmp_path, {"model-1.safetensors": trunk()})
    write_shard(tmp_path / "mtp.safetensors", dense_head())
    checkpoint = read_head_checkpoint(tmp_path)
    assert facts(checkpoint) == dense_head()
    assert checkpoint.head_shards == ("mtp.safetensors",)
    assert checkpoint.shards == ("model-1.safetensors", "mtp.safetensors")
    (warning,) = checkpoint.warnings
    assert "mtp.safetensors holds 15 MTP tensors" in warning


def test_index_wins_over_a_second_copy(folder):
    write_shard(folder / "mtp.safetensors", dense_head())
    checkpoint = read_head_checkpoint(folder)
    assert checkpoint.head_shards == ("model-2.safetensors",)
    assert checkpoint.warnings == ()


def test_unreadable_file_outside_the_index_is_a_warning(folder):
    (folder / "notes.safetensors").write_text("not weights")
    checkpoint = read_head_checkpoint(folder)
    assert facts(checkpoint) == dense_head()
    assert "notes.safetensors" in checkpoint.warnings[0]


def test_index_alone_gives_names_and_shards(folder):
    for shard in folder.glob("*.safetensors"):
        shard.unlink()
    checkpoint = read_head_checkpoint(folder / "model.safetensors.index.json")
    assert set(checkpoint.tensors) == set(dense_head())
    assert checkpoint.head_shards == ("model-2.safetensors",)
    assert not checkpoint.has_shapes
    assert checkpoint.num_bytes is None
    assert len(checkpoint.missing_shards) == 2


def test_tensor_that_its_shard_lacks_is_absent(folder):
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["mtp.fc.weight"] = "model-1.safetensors"
    index["weight_map"]["mtp.extra.weight"] = "model-2.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    checkpoint = read_head_checkpoint(folder)
    assert checkpoint.absent == {
        "mtp.fc.weight": "model-1.safetensors",
        "mtp.extra.weight": "model-2.safetensors",
    }
    assert checkpoint.misplaced == {"mtp.fc.weight": "model-2.safetensors"}
    assert "mtp.fc.weight" not in checkpoint.tensors


def test_head_under_another_prefix_is_misnamed(tmp_path):
    renamed = {f"model.{name}": tensor for name, tensor in dense_head().items()}
    checkpoint = read_head_checkpoint(write_checkpoint(tmp_path, renamed))
    assert not checkpoint.tensors
    assert set(checkpoint.misnamed) == set(renamed)


def test_dedicated_embedding_belongs_to_the_head(tmp_path):
    head = dense_head() | {"mtp.embed_tokens.weight": bf16(512, 128)}
    checkpoint = read_head_checkpoint(write_checkpoint(tmp_path, head))
    assert "mtp.embed_tokens.weight" in checkpoint.tensors
    assert "mtp.embed_tokens.weight" not in checkpoint.shared


def truncate(folder):
    shard = folder / "model-2.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])


def cut_header(folder):
    shard = folder / "model-2.safetensors"
    shard.write_bytes(shard.read_bytes()[:50])


def empty(folder):
    (folder / "model-2.safetensors").write_bytes(b"")


def lfs_pointer(folder):
    (folder / "model-2.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    )


def remove_shard(folder):
    (folder / "model-2.safetensors").unlink()


def write_to_index(text):
    def damage(folder):
        (folder / "model.safetensors.index.json").write_text(text)

    return damage


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncate, ("model-2.safetensors", "no complete safetensors file")),
        (cut_header, ("model-2.safetensors", "no complete safetensors file")),
        (empty, ("model-2.safetensors", "0 bytes")),
        (lfs_pointer, ("model-2.safetensors", "git lfs pull")),
        (remove_shard, ("15 MTP tensors", "model-2.safetensors", "Download")),
        (write_to_index("{"), ("index.json", "not valid JSON")),
        (write_to_index("[]"), ("index.json", "expected an object")),
        (write_to_index("{}"), ("index.json", "weight_map")),
        (write_to_index('{"weight_map": {"mtp.a": 3}}'), ("mtp.a", "file name")),
        (
            write_to_index('{"weight_map": {"mtp.a": "../x.safetensors"}}'),
            ("mtp.a", "../x.safetensors", "outside"),
        ),
        (
            write_to_index('{"weight_map": {"mtp.a": "/x.safetensors"}}'),
            ("mtp.a", "/x.safetensors", "outside"),
        ),
    ],
)
def test_damage_is_an_error_that_names_the_file(folder, damage, words):
    damage(folder)
    with pytest.raises(CheckpointError) as error:
        read_head_checkpoint(folder)
    assert all(word in str(error.value) for word in words), error.value


def test_folder_without_safetensors_is_no_checkpoint(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(NoSafetensorsError, match=r"neither model\.safetensors\.index"):
        read_head_checkpoint(tmp_path)


def test_path_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="neither a checkpoint folder nor"):
        read_head_checkpoint(tmp_path / "nowhere")


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_spread_over_shards_gives_the_same_head(data):
    everything = trunk() | dense_head()
    shards: dict[str, dict] = {}
    for name, tensor in everything.items():
        number = data.draw(st.integers(0, 5), label=name)
        shards.setdefault(f"{number}.safetensors", {})[name] = tensor
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for shard, tensors in shards.items():
            write_shard(folder / shard, tensors)
        write_index(folder, shards)
        checkpoint = read_head_checkpoint(folder)
    assert facts(checkpoint) == dense_head()
    assert set(checkpoint.head_shards) == {
        shard for shard, tensors in shards.items() if tensors.keys() & dense_head()
    }
