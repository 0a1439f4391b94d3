"""The MoE runner for NVFP4 experts where the SM100-only kernels are missing."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from sglang.srt.configs.model_config import ModelConfig

logger = logging.getLogger(__name__)

RUNNERS = {"NVFP4": "flashinfer_cutlass", "W4A16_NVFP4": "marlin"}


def moe_runner_backend_without_sm100(
    model_config: ModelConfig, quantization: Optional[str]
) -> str:
    """Return the value of --moe-runner-backend that ``auto`` stands for.

    Args:
        quantization: what the user asked for, if anything; else the checkpoint says.

    Raises:
        ValueError: a mixed checkpoint has experts of several NVFP4 kinds.
    """
    quantization = quantization or model_config.quantization
    if quantization == "modelopt_fp4":
        algorithms = {"NVFP4"}
    elif quantization == "modelopt_mixed":
        algorithms = expert_algorithms(model_config) & RUNNERS.keys()
    else:
        return "auto"
    if len(algorithms) > 1:
        raise ValueError(
            f"the experts of {model_config.model_path} are quantized as "
            f"{' and '.join(sorted(algorithms))}; no MoE runner serves both. "
            "Choose one with --moe-runner-backend."
        )
    if not algorithms:
        return "auto"
    (algorithm,) = algorithms
    logger.info(
        f"Use {RUNNERS[algorithm]} as MoE runner backend on SM110/SM120 for "
        f"{algorithm} experts (trtllm-gen MoE kernels are SM100-only)"
    )
    return RUNNERS[algorithm]


def expert_algorithms(model_config: ModelConfig) -> set[str]:
    """Return the quantisation algorithms of the experts of a mixed checkpoint."""
    layers = _quantized_layers(model_config)
    return {
        str(layer.get("quant_algo", "")).upper()
        for name, layer in layers.items()
        if ".experts" in name and isinstance(layer, dict)
    }


def _quantized_layers(model_config: ModelConfig) -> dict:
    """From config.json, or from the hf_quant_config.json of older exports."""
    config = getattr(model_config.hf_config, "quantization_config", None) or {}
    if not isinstance(config, dict):
        config = config.to_dict()
    if "quantized_layers" in config:
        return config["quantized_layers"]
    path = os.path.join(model_config.model_path, "hf_quant_config.json")
    if not os.path.isfile(path):
        return {}
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    return config.get("quantization", config).get("quantized_layers", {})
