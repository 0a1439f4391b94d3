"""Writes checkpoints whose headers are real and whose data is a hole in the file."""

from __future__ import annotations

import copy
import json
import math
import struct
from pathlib import Path
from typing import Any

from sglang.srt.speculative.nextn.safetensors_header import DTYPE_BITS
from sglang.srt.speculative.nextn.weight_index import INDEX_NAME

Tensors = dict[str, tuple[str, tuple[int, ...]]]

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, VOCAB = 128, 4, 2, 32, 256, 512
EXPERTS, EXPERT_SIZE, SHARED_SIZE = 4, 64, 96

DENSE_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_text",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "num_hidden_layers": 4,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": INTERMEDIATE,
        "mtp_num_hidden_layers": 1,
        "attn_output_gate": True,
    },
}
MOE_CONFIG: dict[str, Any] = {
    **DENSE_CONFIG,
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "text_config": {
        **DENSE_CONFIG["text_config"],
        "model_type": "qwen3_5_moe_text",
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": EXPERT_SIZE,
        "shared_expert_intermediate_size": SHARED_SIZE,
    },
}


def with_text(config: dict[str, Any], **values: Any) -> dict[str, Any]:
    """`config` with `values` in its text part; None removes a key."""
    changed = copy.deepcopy(config)
    for key, value in values.items():
        changed["text_config"][key] = value
        if value is None:
            del changed["text_config"][key]
    return changed


# The sizes of Qwen3.5-397B-A17B that shape its head.
LARGE_CONFIG = with_text(
    MOE_CONFIG,
    hidden_size=4096,
    num_attention_heads=32,
    num_key_value_heads=2,
    head_dim=256,
    num_experts=512,
    num_experts_per_tok=10,
    moe_intermediate_size=1024,
    shared_expert_intermediate_size=1024,
    vocab_size=248320,
)


def bf16(*shape: int) -> tuple[str, tuple[int, ...]]:
    return "BF16", shape


def attention_layer(prefix: str) -> Tensors:
    return {
        f"{prefix}.input_layernorm.weight": bf16(HIDDEN),
        f"{prefix}.post_attention_layernorm.weight": bf16(HIDDEN),
        f"{prefix}.self_attn.q_proj.weight": bf16(2 * HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}.self_attn.k_proj.weight": bf16(KV_HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}.self_attn.v_proj.weight": bf16(KV_HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}.self_attn.o_proj.weight": bf16(HIDDEN, HEADS * HEAD_DIM),
        f"{prefix}.self_attn.q_norm.weight": bf16(HEAD_DIM),
        f"{prefix}.self_attn.k_norm.weight": bf16(HEAD_DIM),
    }


def gated_mlp(prefix: str, size: int) -> Tensors:
    return {
        f"{prefix}.gate_proj.weight": bf16(size, HIDDEN),
        f"{prefix}.up_proj.weight": bf16(size, HIDDEN),
        f"{prefix}.down_proj.weight": bf16(HIDDEN, size),
    }


def outer_modules() -> Tensors:
    return {
        "mtp.fc.weight": bf16(HIDDEN, 2 * HIDDEN),
        "mtp.norm.weight": bf16(HIDDEN),
        "mtp.pre_fc_norm_embedding.weight": bf16(HIDDEN),
        "mtp.pre_fc_norm_hidden.weight": bf16(HIDDEN),
    }


def dense_head(num_layers: int = 1) -> Tensors:
    tensors = outer_modules()
    for index in range(num_layers):
        layer = f"mtp.layers.{index}"
        tensors |= attention_layer(layer) | gated_mlp(f"{layer}.mlp", INTERMEDIATE)
    return tensors


def moe_head(*, packed: bool = False) -> Tensors:
    mlp = "mtp.layers.0.mlp"
    tensors = (
        outer_modules()
        | attention_layer("mtp.layers.0")
        | gated_mlp(f"{mlp}.shared_expert", SHARED_SIZE)
        | {
            f"{mlp}.gate.weight": bf16(EXPERTS, HIDDEN),
            f"{mlp}.shared_expert_gate.weight": bf16(1, HIDDEN),
        }
    )
    if packed:
        return tensors | {
            f"{mlp}.experts.gate_up_proj": bf16(EXPERTS, 2 * EXPERT_SIZE, HIDDEN),
            f"{mlp}.experts.down_proj": bf16(EXPERTS, HIDDEN, EXPERT_SIZE),
        }
    for expert in range(EXPERTS):
        tensors |= gated_mlp(f"{mlp}.experts.{expert}", EXPERT_SIZE)
    return tensors


def large_head() -> Tensors:
    """The head of Qwen3.5-397B-A17B: one layer, 512 experts, 1,553 tensors."""
    layer, hidden, size = "mtp.layers.0", 4096, 1024
    mlp, attention = f"{layer}.mlp", f"{layer}.self_attn"
    tensors = {
        "mtp.fc.weight": bf16(hidden, 2 * hidden),
        "mtp.norm.weight": bf16(hidden),
        "mtp.pre_fc_norm_embedding.weight": bf16(hidden),
        "mtp.pre_fc_norm_hidden.weight": bf16(hidden),
        f"{layer}.input_layernorm.weight": bf16(hidden),
        f"{layer}.post_attention_layernorm.weight": bf16(hidden),
        f"{attention}.q_proj.weight": bf16(16384, hidden),
        f"{attention}.k_proj.weight": bf16(512, hidden),
        f"{attention}.v_proj.weight": bf16(512, hidden),
        f"{attention}.o_proj.weight": bf16(hidden, 8192),
        f"{attention}.q_norm.weight": bf16(256),
        f"{attention}.k_norm.weight": bf16(256),
        f"{mlp}.gate.weight": bf16(512, hidden),
        f"{mlp}.shared_expert_gate.weight": bf16(1, hidden),
    }
    experts = [f"{mlp}.experts.{expert}" for expert in range(512)]
    for prefix in (f"{mlp}.shared_expert", *experts):
        tensors |= {
            f"{prefix}.gate_proj.weight": bf16(size, hidden),
            f"{prefix}.up_proj.weight": bf16(size, hidden),
            f"{prefix}.down_proj.weight": bf16(hidden, size),
        }
    return tensors


def trunk() -> Tensors:
    """The few tensors of a target that matter to its head, and one that does not."""
    return {
        "model.language_model.embed_tokens.weight": bf16(VOCAB, HIDDEN),
        "model.language_model.norm.weight": bf16(HIDDEN),
        "lm_head.weight": bf16(VOCAB, HIDDEN),
    }


def quantize(tensors: Tensors, names: list[str], suffixes: Tensors) -> Tensors:
    """Replace `weight` of each module in `names` by `suffixes`, given for its shape."""
    changed = dict(tensors)
    for name in names:
        del changed[f"{name}.weight"]
        changed |= {f"{name}.{suffix}": value for suffix, value in suffixes.items()}
    return changed


def nvfp4(rows: int, columns: int) -> Tensors:
    return {
        "weight": ("U8", (rows, columns // 2)),
        "weight_scale": ("F8_E4M3", (rows, columns // 16)),
        "weight_scale_2": ("F32", ()),
        "input_scale": ("F32", ()),
    }


def nvfp4_packed(rows: int, columns: int) -> Tensors:
    return {
        "weight_packed": ("U8", (rows, columns // 2)),
        "weight_scale": ("F8_E4M3", (rows, columns // 16)),
        "weight_global_scale": ("F32", (1,)),
        "input_global_scale": ("F32", (1,)),
    }


def write_shard(path: Path, tensors: Tensors) -> None:
    """A safetensors file of `tensors` whose data takes no room on the disk."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + math.prod(shape) * DTYPE_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    encoded = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        file.truncate(8 + len(encoded) + end)


def write_index(
    folder: Path, shards: dict[str, Tensors], name: str = INDEX_NAME
) -> None:
    weight_map = {tensor: shard for shard in shards for tensor in shards[shard]}
    (folder / name).write_text(json.dumps({"weight_map": weight_map}))


def write_checkpoint(
    folder: Path,
    head: Tensors,
    config: dict[str, Any] = DENSE_CONFIG,
    quantization: dict[str, Any] | None = None,
) -> Path:
    """A folder of two shards, the target's and the head's, with index and config."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = {"model-1.safetensors": trunk(), "model-2.safetensors": head}
    for name, tensors in shards.items():
        write_shard(folder / name, tensors)
    write_index(folder, shards)
    if quantization is not None:
        config = {**config, "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
