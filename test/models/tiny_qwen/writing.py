"""Write the trained model as a checkpoint that SGLang and transformers both load."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from tiny_qwen.architecture import Architecture
from tiny_qwen.checkpoint import Checkpoint, shard_name, write_json
from tiny_qwen.model import TinyQwen
from tiny_qwen.tokenizer import (
    END_OF_TEXT,
    END_OF_TEXT_ID,
    IMAGE_PAD,
    VIDEO_PAD,
    VISION_END,
    VISION_START,
)

VISION_SIZE, PATCH_SIZE, MERGE_SIZE, TEMPORAL_PATCH_SIZE = 64, 16, 2, 2
VISION_STD = 0.05

# Roles as words, and each image as the tokens that the processor expands.
CHAT_TEMPLATE = f"""\
{{%- for message in messages -%}}
{{{{ message.role }}}}:
{{%- if message.content is string -%}}
{{{{ message.content }}}}
{{%- else -%}}
{{%- for part in message.content -%}}
{{%- if part.type == "text" -%}}
{{{{ part.text }}}}
{{%- else -%}}
{VISION_START}{IMAGE_PAD}{VISION_END}
{{%- endif -%}}
{{%- endfor -%}}
{{%- endif -%}}
{{{{ "\\n" }}}}
{{%- endfor -%}}
"""


def write_checkpoint(out: Path, model: TinyQwen, tokenizer: Tokenizer) -> None:
    """Write config, weights in bfloat16 (trunk and head in a shard each), tokenizer and
    processor files into `out`, which must hold no weights yet."""
    tensors = {
        name: tensor.detach().bfloat16()
        for name, tensor in {
            **model.state_dict(),
            **vision_tensors(model.architecture.hidden_size),
        }.items()
    }
    file_of = {
        name: shard_name(2 if name.startswith("mtp.") else 1, 2) for name in tensors
    }
    config = model_config(model.architecture, tokenizer)
    Checkpoint(config, tensors).write(out, file_of)
    tokenizer.save(str(out / "tokenizer.json"))
    write_json(out / "tokenizer_config.json", tokenizer_config())
    (out / "chat_template.jinja").write_text(CHAT_TEMPLATE, "utf-8")
    write_processor_configs(out)


def model_config(architecture: Architecture, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": text_config(architecture),
        "vision_config": {
            "model_type": "qwen3_5",
            "depth": 1,
            "hidden_size": VISION_SIZE,
            "num_heads": 2,
            "intermediate_size": VISION_SIZE,
            "out_hidden_size": architecture.hidden_size,
            "patch_size": PATCH_SIZE,
            "spatial_merge_size": MERGE_SIZE,
            "temporal_patch_size": TEMPORAL_PATCH_SIZE,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [],
        },
        "image_token_id": tokenizer.token_to_id(IMAGE_PAD),
        "video_token_id": tokenizer.token_to_id(VIDEO_PAD),
        "vision_start_token_id": tokenizer.token_to_id(VISION_START),
        "vision_end_token_id": tokenizer.token_to_id(VISION_END),
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }


def text_config(architecture: Architecture) -> dict[str, Any]:
    pairs = architecture.rotary_dim // 2
    same_name = (
        "vocab_size hidden_size num_hidden_layers full_attention_interval "
        "num_attention_heads num_key_value_heads head_dim intermediate_size "
        "linear_num_key_heads linear_num_value_heads linear_key_head_dim "
        "linear_value_head_dim linear_conv_kernel_dim rms_norm_eps "
        "max_position_embeddings layer_types"
    )
    return {
        "model_type": "qwen3_5_text",
        **{name: getattr(architecture, name) for name in same_name.split()},
        "mtp_num_hidden_layers": 1,
        "hidden_act": "silu",
        "attn_output_gate": True,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": architecture.rope_theta,
            "partial_rotary_factor": architecture.rotary_dim / architecture.head_dim,
            "mrope_section": [pairs // 2, pairs // 4, pairs // 4],
            "mrope_interleaved": True,
        },
        "dtype": "bfloat16",
        "mamba_ssm_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": END_OF_TEXT_ID,
    }


def tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "image_token": IMAGE_PAD,
        "video_token": VIDEO_PAD,
        "vision_start_token": VISION_START,
        "vision_end_token": VISION_END,
    }


def write_processor_configs(out: Path) -> None:
    shared = {
        "processor_class": "Qwen3VLProcessor",
        "patch_size": PATCH_SIZE,
        "temporal_patch_size": TEMPORAL_PATCH_SIZE,
        "merge_size": MERGE_SIZE,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    image = {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "size": {"shortest_edge": 65536, "longest_edge": 16777216},
    }
    video = {
        "video_processor_type": "Qwen3VLVideoProcessor",
        "size": {"shortest_edge": 4096, "longest_edge": 25165824},
    }
    write_json(out / "preprocessor_config.json", {**shared, **image})
    write_json(out / "video_preprocessor_config.json", {**shared, **video})


def vision_tensors(hidden_size: int) -> dict[str, Tensor]:
    """An untrained vision tower, so that an image has a path through the model."""
    generator = torch.Generator().manual_seed(2)
    size, merged = VISION_SIZE, VISION_SIZE * MERGE_SIZE**2
    block, merger = "model.visual.blocks.0.", "model.visual.merger."
    patch = (size, 3, TEMPORAL_PATCH_SIZE, PATCH_SIZE, PATCH_SIZE)
    weights = {
        "model.visual.patch_embed.proj": patch,
        f"{block}attn.qkv": (3 * size, size),
        f"{block}attn.proj": (size, size),
        f"{block}mlp.linear_fc1": (size, size),
        f"{block}mlp.linear_fc2": (size, size),
        f"{merger}linear_fc1": (merged, merged),
        f"{merger}linear_fc2": (hidden_size, merged),
    }

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * VISION_STD

    tensors = {"model.visual.pos_embed.weight": random(64, size)}
    for name, shape in weights.items():
        tensors[f"{name}.weight"] = random(*shape)
        tensors[f"{name}.bias"] = random(shape[0])
    for name in (f"{block}norm1", f"{block}norm2", f"{merger}norm"):
        tensors[f"{name}.weight"] = torch.ones(size)
        tensors[f"{name}.bias"] = torch.zeros(size)
    return tensors
