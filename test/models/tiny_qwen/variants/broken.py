"""Checkpoints that must be refused: each is the dense one with a single thing wrong."""

from pathlib import Path

import torch

from tiny_qwen.checkpoint import Checkpoint, read_index, shard_name, write_index
from tiny_qwen.variants.architectures import unpack_experts, upcycle
from tiny_qwen.variants.layouts import spread
from tiny_qwen.variants.registry import broken

SHARDS = {"trunk_shards": 2, "mtp_shards": 2}
MTP_SHARD = shard_name(4, 4)


@broken("mtp.layers.0.self_attn.k_proj.weight")
def missing_mtp_tensor(source: Path, out: Path) -> None:
    """The head lacks `k_proj`."""
    checkpoint = Checkpoint.read(source)
    del checkpoint.tensors["mtp.layers.0.self_attn.k_proj.weight"]
    checkpoint.write(out, spread(checkpoint, **SHARDS))


@broken("mtp.layers.0.mlp.experts.5.up_proj.weight")
def missing_mtp_expert(source: Path, out: Path) -> None:
    """A mixture of experts whose head lacks one matrix of one expert."""
    checkpoint = upcycle(Checkpoint.read(source))
    unpack_experts(checkpoint, "mtp.")
    del checkpoint.tensors["mtp.layers.0.mlp.experts.5.up_proj.weight"]
    checkpoint.write(out, spread(checkpoint, **SHARDS))


@broken("mtp.layers.0.self_attn.extra_proj.weight")
def extra_mtp_tensor(source: Path, out: Path) -> None:
    """The head has a matrix that the architecture does not know."""
    checkpoint = Checkpoint.read(source)
    known = checkpoint.tensors["mtp.layers.0.self_attn.k_proj.weight"]
    extra = "mtp.layers.0.self_attn.extra_proj.weight"
    checkpoint.tensors[extra] = torch.zeros_like(known)
    checkpoint.write(out, spread(checkpoint, **SHARDS))


@broken("mtp.fc.weight")
def misshapen_mtp_tensor(source: Path, out: Path) -> None:
    """`mtp.fc` reads the hidden state only: half of its columns are missing."""
    checkpoint = Checkpoint.read(source)
    fc = checkpoint.tensors["mtp.fc.weight"]
    checkpoint.tensors["mtp.fc.weight"] = fc[:, : fc.shape[1] // 2]
    checkpoint.write(out, spread(checkpoint, **SHARDS))


@broken("mtp_num_hidden_layers")
def dropped_mtp_head(source: Path, out: Path) -> None:
    """No `mtp.*` tensor at all, while the configuration promises one layer."""
    checkpoint = Checkpoint.read(source)
    for name in checkpoint.names("mtp."):
        del checkpoint.tensors[name]
    checkpoint.write(out, spread(checkpoint, trunk_shards=2, mtp_shards=0))


@broken("mtp_num_hidden_layers", "mtp.layers.1.")
def fewer_mtp_layers_than_configured(source: Path, out: Path) -> None:
    """The configuration promises two MTP layers and the weights have one."""
    checkpoint = Checkpoint.read(source)
    checkpoint.text_config["mtp_num_hidden_layers"] = 2
    checkpoint.write(out, spread(checkpoint, **SHARDS))


@broken("mtp_num_hidden_layers", "mtp.layers.1.")
def more_mtp_layers_than_configured(source: Path, out: Path) -> None:
    """The configuration promises one MTP layer and the weights have two."""
    checkpoint = Checkpoint.read(source)
    for name in checkpoint.names("mtp.layers.0."):
        second = name.replace("layers.0.", "layers.1.")
        checkpoint.tensors[second] = checkpoint.tensors[name].clone()
    checkpoint.write(out, spread(checkpoint, **SHARDS))


@broken("mtp_num_hidden_layers")
def mtp_head_not_configured(source: Path, out: Path) -> None:
    """The configuration says zero MTP layers and the weights have one."""
    checkpoint = Checkpoint.read(source)
    checkpoint.text_config["mtp_num_hidden_layers"] = 0
    checkpoint.write(out, spread(checkpoint, **SHARDS))


@broken(MTP_SHARD)
def missing_shard(source: Path, out: Path) -> None:
    """The index names a shard of the head that is not there."""
    checkpoint = Checkpoint.read(source)
    checkpoint.write(out, spread(checkpoint, **SHARDS))
    (out / MTP_SHARD).unlink()


@broken(MTP_SHARD)
def truncated_shard(source: Path, out: Path) -> None:
    """A shard of the head ends early, as after a download that stopped."""
    checkpoint = Checkpoint.read(source)
    checkpoint.write(out, spread(checkpoint, **SHARDS))
    shard = out / MTP_SHARD
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) * 2 // 3])


@broken("mtp.fc.weight", MTP_SHARD)
def index_names_wrong_shard(source: Path, out: Path) -> None:
    """The index says that `mtp.fc` lies in a shard that does not hold it."""
    checkpoint = Checkpoint.read(source)
    checkpoint.write(out, spread(checkpoint, **SHARDS))
    index = read_index(out)
    index["weight_map"]["mtp.fc.weight"] = MTP_SHARD
    write_index(out, index["weight_map"], index["metadata"]["total_size"])
