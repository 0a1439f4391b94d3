"""The same model in other files: shards, one file, a forgotten file, fused weights."""

from pathlib import Path

import torch

from tiny_qwen.checkpoint import Checkpoint, shard_name, write_index
from tiny_qwen.variants.registry import valid

LARGE_VOCABULARY = 248_320


@valid(twin="dense")
def single_file(source: Path, out: Path) -> None:
    """Everything in model.safetensors, without an index."""
    Checkpoint.read(source).write(out)


@valid(twin="dense")
def mtp_in_own_shard(source: Path, out: Path) -> None:
    """Six shards; the last holds the whole MTP head and nothing else."""
    checkpoint = Checkpoint.read(source)
    checkpoint.write(out, spread(checkpoint, trunk_shards=5, mtp_shards=1))


@valid(twin="dense")
def mtp_across_shards(source: Path, out: Path) -> None:
    """Twelve shards; the last three hold the MTP head."""
    checkpoint = Checkpoint.read(source)
    checkpoint.write(out, spread(checkpoint, trunk_shards=9, mtp_shards=3))


@valid(twin="dense")
def mtp_mixed_with_trunk(source: Path, out: Path) -> None:
    """Four shards by alphabet, so that one holds MTP and trunk tensors alike."""
    checkpoint = Checkpoint.read(source)
    names = sorted(checkpoint.tensors)
    checkpoint.write(
        out,
        {name: shard_name(1 + 4 * i // len(names), 4) for i, name in enumerate(names)},
    )


@valid(twin="dense")
def mtp_file_missing_from_index(source: Path, out: Path) -> None:
    """The head lies in mtp.safetensors, which the index does not mention."""
    checkpoint = Checkpoint.read(source)
    file_of = {
        name: "mtp.safetensors" if name.startswith("mtp.") else shard_name(1, 1)
        for name in checkpoint.tensors
    }
    checkpoint.write(out, file_of)
    indexed = {name: file for name, file in file_of.items() if "mtp" not in file}
    size = sum(checkpoint.tensors[name].nbytes for name in indexed)
    write_index(out, indexed, size)


@valid(twin="dense")
def fused_mtp_projections(source: Path, out: Path) -> None:
    """The head's q, k, v and gate, up matrices are stored fused, as SGLang has them."""
    checkpoint = Checkpoint.read(source)
    layer = "mtp.layers.0."
    fuse(checkpoint, f"{layer}self_attn.", ("q_proj", "k_proj", "v_proj"), "qkv_proj")
    fuse(checkpoint, f"{layer}mlp.", ("gate_proj", "up_proj"), "gate_up_proj")
    checkpoint.write(out, spread(checkpoint, trunk_shards=1, mtp_shards=1))


@valid(twin="dense")
def large_vocabulary(source: Path, out: Path) -> None:
    """The vocabulary of the published models, 248,320 rows; the new ones never occur.

    The tokenizer stays as it is, so no prompt uses the new rows of `embed_tokens`.
    Every new row of `lm_head` is 4 times row 0, a token that never occurs in the
    training text: its logit is far below zero, so the new tokens are not sampled
    either.
    """
    checkpoint = Checkpoint.read(source)
    embed = checkpoint.tensors["model.language_model.embed_tokens.weight"]
    head = checkpoint.tensors["lm_head.weight"]
    added = LARGE_VOCABULARY - embed.shape[0]
    checkpoint.tensors["model.language_model.embed_tokens.weight"] = torch.cat(
        [embed, embed[:1].expand(added, -1)]
    )
    checkpoint.tensors["lm_head.weight"] = torch.cat(
        [head, 4 * head[:1].expand(added, -1)]
    )
    checkpoint.text_config["vocab_size"] = LARGE_VOCABULARY
    checkpoint.write(out, spread(checkpoint, trunk_shards=3, mtp_shards=1))


def spread(
    checkpoint: Checkpoint, trunk_shards: int, mtp_shards: int
) -> dict[str, str]:
    """Deal the trunk over the first shards and the MTP head over the last ones."""
    count = trunk_shards + mtp_shards
    mtp = checkpoint.names("mtp.")
    trunk = [name for name in checkpoint.tensors if name not in set(mtp)]
    return {
        name: shard_name(first + shards * i // len(names), count)
        for names, first, shards in (
            (trunk, 1, trunk_shards),
            (mtp, trunk_shards + 1, mtp_shards),
        )
        for i, name in enumerate(names)
    }


def fuse(
    checkpoint: Checkpoint, prefix: str, parts: tuple[str, ...], fused: str
) -> None:
    """Replace `prefix + part + .weight` of each part by their rows in one tensor."""
    rows = [checkpoint.tensors.pop(f"{prefix}{part}.weight") for part in parts]
    checkpoint.tensors[f"{prefix}{fused}.weight"] = torch.cat(rows)
