"""Tells the engine which modules of the head are quantised, as the tensors say."""

from __future__ import annotations

import copy
from typing import Any

import torch

from sglang.srt.layers.linear import LinearBase
from sglang.srt.layers.quantization.base_config import QuantizationConfig
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.speculative.nextn.quantization import HeadQuantization

# Where each quantisation method of SGLang keeps the modules that it leaves alone.
_EXCLUDE_LISTS = (
    "exclude_modules",
    "ignored_layers",
    "ignore",
    "modules_to_not_convert",
)


class HeadQuantConfig(QuantizationConfig):
    """The target's quantisation, applied to those modules that are stored quantised.

    The exclude lists of the checkpoint decide nothing: they are emptied in a copy, so
    that their spelling cannot leave a stored module without its method.
    """

    def __init__(self, target: QuantizationConfig, decided: HeadQuantization):
        super().__init__()
        self.target = copy.copy(target)
        for name in _EXCLUDE_LISTS:
            if hasattr(self.target, name):
                setattr(self.target, name, [])
        self.decided = decided
        self.packed_modules_mapping = target.packed_modules_mapping

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        if prefix in self.decided.schemes and not self.decided.is_quantized(prefix):
            return UnquantizedLinearMethod() if isinstance(layer, LinearBase) else None
        return self.target.get_quant_method(layer, prefix)

    def get_name(self) -> str:
        return self.target.get_name()

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return self.target.get_supported_act_dtypes()

    def get_scaled_act_names(self) -> list[str]:
        return self.target.get_scaled_act_names()

    @classmethod
    def get_min_capability(cls) -> int:
        return 0

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> QuantizationConfig:
        raise NotImplementedError("built from a target's configuration only")

    def __getattr__(self, name: str) -> Any:
        # Model code asks for attributes of the method's own configuration.
        if name == "target":
            raise AttributeError(name)
        return getattr(self.target, name)


def head_quant_config(
    target: QuantizationConfig | None, decided: HeadQuantization
) -> QuantizationConfig | None:
    """Return the quantisation to build the head with; None when nothing has one."""
    if target is None or not decided.any_quantized:
        return None
    return HeadQuantConfig(target, decided)
