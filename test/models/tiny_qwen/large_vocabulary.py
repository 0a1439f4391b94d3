"""A checkpoint with Qwen3.5's real vocabulary and layers of a few megabytes.

Weights are random, so nothing that it says means anything, and the target seldom agrees
with a draft; loading, memory and the time of a round do not depend on that.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer

from tiny_qwen.architecture import Architecture
from tiny_qwen.checkpoint import Checkpoint, shard_name
from tiny_qwen.initial import initial_model
from tiny_qwen.writing import model_config, vision_tensors

TRAINED = Path(__file__).resolve().parents[1] / "trained"
VOCABULARY = 248_320
CONTEXT = 262_144
EMBEDDING, LAYERS, LM_HEAD, FIRST_OF_HEAD, LAST_OF_HEAD = range(1, 6)


def write_large_vocabulary(out: Path, hidden_size: int = 512) -> Architecture:
    """Write five shards, of which the last two hold ``mtp.*``, in bfloat16."""
    architecture = Architecture(
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        head_dim=256,
        rotary_dim=64,
        max_position_embeddings=CONTEXT,
    )
    trained = Checkpoint.read(TRAINED)
    tokenizer = Tokenizer.from_file(str(TRAINED / "tokenizer.json"))
    torch.manual_seed(0)
    model = initial_model(architecture)
    named = {**model.state_dict(), **vision_tensors(hidden_size)}
    tensors = {name: tensor.bfloat16() for name, tensor in named.items()}
    file_of = {
        name: shard_name(shard, LAST_OF_HEAD)
        for name, shard in zip(tensors, _shards(list(tensors)), strict=True)
    }
    config = model_config(architecture, tokenizer)
    Checkpoint(config, tensors, trained.companions).write(out, file_of)
    return architecture


def _shards(names: list[str]) -> list[int]:
    head = [name for name in names if name.startswith("mtp.")]
    first_half = set(head[: len(head) // 2])

    def shard(name: str) -> int:
        if name in first_half:
            return FIRST_OF_HEAD
        if name.startswith("mtp."):
            return LAST_OF_HEAD
        if "embed_tokens" in name:
            return EMBEDDING
        return LM_HEAD if name.startswith("lm_head") else LAYERS

    return [shard(name) for name in names]
