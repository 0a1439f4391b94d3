"""A checkpoint in NVFP4, as ModelOpt and as compressed-tensors write it.

The MLPs are quantised, experts one by one; gated delta net, router, embeddings, vision
and the MTP head stay in BF16, as in the published checkpoints.

    write(quantize(Checkpoint.read(source), Recipe()), out)
    python -m tiny_qwen.nvfp4 SOURCE OUT --format compressed-tensors --weight-only
"""

from __future__ import annotations

import argparse
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgl_kernel_nvfp4.formats import BLOCK, E2M1_MAX, E4M3_MAX
from sgl_kernel_nvfp4.reference import quantize_linear
from tiny_qwen.checkpoint import Checkpoint, write_json
from tiny_qwen.variants.architectures import unpack_experts

TRUNK = "model.language_model."
MODELOPT, COMPRESSED_TENSORS = "modelopt", "compressed-tensors"

# Projections that engines fuse; they share their scales, as ModelOpt exports them.
FUSED = (
    ("mlp", re.compile(r"(.*mlp\..*)(gate|up)_proj\.weight")),
    ("mlp", re.compile(r"(.*mlp\..*down_proj)\.weight")),
    ("attention", re.compile(r"(.*self_attn\.)(q|k|v)_proj\.weight")),
    ("attention", re.compile(r"(.*self_attn\.o_proj)\.weight")),
    ("lm_head", re.compile(r"(lm_head)\.weight")),
)

INPUT_AMAX = 24.0
"""The greatest activation that a norm puts out, with room: more saturates."""

INNER_INPUT_AMAX = 12.0
"""The same for what attention and MLP multiply last."""


@dataclass(frozen=True)
class Recipe:
    """What to quantise and how to write it.

    Attributes:
        layout: "modelopt" or "compressed-tensors".
        parts: of "mlp", "attention", "lm_head".
        head: whether the MTP head is quantised like the trunk.
        weight_only: W4A16, else W4A4.
    """

    layout: str = MODELOPT
    parts: tuple[str, ...] = ("mlp",)
    head: bool = False
    weight_only: bool = False


def quantize(checkpoint: Checkpoint, recipe: Recipe) -> Checkpoint:
    """Return ``checkpoint`` with the weights of ``recipe`` in NVFP4."""
    checkpoint = Checkpoint(
        copy.deepcopy(checkpoint.config),
        dict(checkpoint.tensors),
        checkpoint.companions,
    )
    unpack_experts(checkpoint, "" if recipe.head else TRUNK)
    for names in fused_groups(checkpoint, recipe):
        weights = [checkpoint.tensors[name] for name in names]
        scale = tensor_scale(max(float(weight.abs().max()) for weight in weights))
        for name, weight in zip(names, weights, strict=True):
            del checkpoint.tensors[name]
            module = name.removesuffix(".weight")
            stored = quantize_weight(weight, scale, recipe, input_scale_of(module))
            checkpoint.tensors |= {f"{module}.{key}": t for key, t in stored.items()}
    checkpoint.config["quantization_config"] = config_of(checkpoint, recipe)
    return checkpoint


def write(checkpoint: Checkpoint, out: Path) -> None:
    """Write a quantised checkpoint; ModelOpt's also has hf_quant_config.json."""
    checkpoint.write(out)
    config = checkpoint.config["quantization_config"]
    if config["quant_method"] == MODELOPT:
        legacy = {
            "quant_algo": config["quant_algo"],
            "kv_cache_quant_algo": None,
            "group_size": BLOCK,
            "exclude_modules": config["ignore"],
        }
        content = {"producer": config["producer"], "quantization": legacy}
        write_json(out / "hf_quant_config.json", content)


def fused_groups(checkpoint: Checkpoint, recipe: Recipe) -> Iterator[list[str]]:
    """Names of the weights to quantise; those that share a scale come together."""
    groups: dict[tuple[int, str], list[str]] = {}
    for name in checkpoint.tensors:
        is_head = name.startswith("mtp.") and recipe.head
        if not is_head and not name.startswith((TRUNK, "lm_head")):
            continue
        for number, (part, pattern) in enumerate(FUSED):
            if part in recipe.parts and (match := pattern.fullmatch(name)):
                groups.setdefault((number, match[1]), []).append(name)
    return iter(groups.values())


def tensor_scale(amax: float) -> Tensor:
    """The float32 scale with which ``amax`` is the greatest code times scale."""
    return torch.tensor(amax / (E2M1_MAX * E4M3_MAX), dtype=torch.float32)


def input_scale_of(module: str) -> Tensor:
    inner = module.endswith(("down_proj", "o_proj"))
    return tensor_scale(INNER_INPUT_AMAX if inner else INPUT_AMAX)


def quantize_weight(
    weight: Tensor, scale: Tensor, recipe: Recipe, input_scale: Tensor
) -> dict[str, Tensor]:
    """The tensors that replace a weight [N, K], by the last part of their names."""
    codes, block_scale = quantize_linear(weight, 1 / scale)
    if recipe.layout == MODELOPT:
        stored = {
            "weight": codes,
            "weight_scale": block_scale,
            "weight_scale_2": scale.clone(),
        }
        return stored if recipe.weight_only else {**stored, "input_scale": input_scale}
    stored = {
        "weight_packed": codes,
        "weight_scale": block_scale,
        "weight_global_scale": (1 / scale).reshape(1),
    }
    if not recipe.weight_only:
        stored["input_global_scale"] = (1 / input_scale).reshape(1)
    return stored


def config_of(checkpoint: Checkpoint, recipe: Recipe) -> dict[str, Any]:
    """The ``quantization_config`` of config.json."""
    values: dict[str, Any] = {"num_bits": 4, "type": "float", "group_size": BLOCK}
    if recipe.layout == COMPRESSED_TENSORS:
        values |= {"strategy": "tensor_group", "symmetric": True}
    targets = ["Linear"]
    if "lm_head" in recipe.parts and recipe.layout == COMPRESSED_TENSORS:
        targets.append("re:.*lm_head")
    group: dict[str, Any] = {
        "targets": targets,
        "weights": {**values, "dynamic": False},
    }
    if not recipe.weight_only:
        dynamic = "local" if recipe.layout == COMPRESSED_TENSORS else False
        group["input_activations"] = {**values, "dynamic": dynamic}
    config = {
        "config_groups": {"group_0": group},
        "ignore": ignored_modules(checkpoint, recipe),
    }
    if recipe.layout == COMPRESSED_TENSORS:
        return {
            "quant_method": COMPRESSED_TENSORS,
            "format": "nvfp4-pack-quantized",
            "quantization_status": "compressed",
            **config,
        }
    return {
        "quant_method": MODELOPT,
        "quant_algo": "W4A16_NVFP4" if recipe.weight_only else "NVFP4",
        "producer": {"name": "modelopt", "version": "0.39.0"},
        **config,
    }


def ignored_modules(checkpoint: Checkpoint, recipe: Recipe) -> list[str]:
    """Every matrix that stays as it is, by the name of its module."""
    modules = {
        name.removesuffix(".weight")
        for name, tensor in checkpoint.tensors.items()
        if name.endswith(".weight")
        and tensor.dim() == 2
        and tensor.dtype != torch.uint8
        and "embed" not in name
    }
    explicit = {name for name in modules if not name.startswith(("mtp.", "model.vis"))}
    if recipe.layout == COMPRESSED_TENSORS:
        return sorted([*modules])
    return sorted([*explicit, "model.visual*", *([] if recipe.head else ["mtp*"])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="folder of a checkpoint in BF16")
    parser.add_argument("out", type=Path, help="folder to write; it must be empty")
    parser.add_argument(
        "--format", default=MODELOPT, choices=(MODELOPT, COMPRESSED_TENSORS)
    )
    parser.add_argument("--weight-only", action="store_true", help="W4A16, not W4A4")
    parser.add_argument("--attention", action="store_true", help="quantise it as well")
    parser.add_argument("--lm-head", action="store_true", help="quantise it as well")
    parser.add_argument("--mtp", action="store_true", help="quantise the head as well")
    options = parser.parse_args()
    parts = ["mlp"]
    parts += ["attention"] if options.attention else []
    parts += ["lm_head"] if options.lm_head else []
    recipe = Recipe(options.format, tuple(parts), options.mtp, options.weight_only)
    write(quantize(Checkpoint.read(options.source), recipe), options.out)


if __name__ == "__main__":
    main()
