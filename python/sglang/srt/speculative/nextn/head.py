"""The MTP head as a part of the target: its own layers, the target's tables."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn

from sglang.srt.layers.layernorm import GemmaRMSNorm
from sglang.srt.layers.linear import ReplicatedLinear
from sglang.srt.layers.logits_processor import LogitsProcessor
from sglang.srt.layers.quantization.base_config import QuantizationConfig
from sglang.srt.layers.utils.common import PPMissingLayer
from sglang.srt.lora.layers import unwrap_lora_layer
from sglang.srt.models.qwen3_5 import Qwen3_5ForCausalLM
from sglang.srt.models.qwen3_5_mtp import Qwen3_5ForCausalLMMTP
from sglang.srt.runtime_context import get_parallel


@dataclass(frozen=True)
class SharedTables:
    """The target's modules that the head uses by reference.

    Attributes:
        embed_tokens: None on a pipeline stage that does not hold it.
        lm_head: the output projection; the same module as ``embed_tokens`` when tied.
    """

    embed_tokens: nn.Module | None
    lm_head: nn.Module

    @classmethod
    def of(cls, target: nn.Module) -> SharedTables:
        """Take the tables of a loaded target, without its LoRA wrappers."""
        embed_tokens = unwrap_lora_layer(target.model.embed_tokens)
        if isinstance(embed_tokens, PPMissingLayer):
            embed_tokens = None
        return cls(embed_tokens, unwrap_lora_layer(target.lm_head))


class MTPHead(Qwen3_5ForCausalLMMTP):
    """``fc``, two norms, the full-attention layers and ``norm``; forward is upstream's.

    The target's tables are reachable as attributes and are no submodules: parameters,
    state dict and weight updates of the head are its own tensors alone.

    Args:
        config: the target's transformers configuration.
        quant_config: how the head's own modules are stored; None when unquantised.
        tables: the target's modules to share.
        num_layers: how many MTP layers to build.
    """

    def __init__(
        self,
        config,
        quant_config: QuantizationConfig | None,
        tables: SharedTables,
        num_layers: int,
    ) -> None:
        nn.Module.__init__(self)
        self.is_multimodal = hasattr(config, "text_config")
        self.config = copy.deepcopy(getattr(config, "text_config", config))
        self.quant_config = quant_config
        self.pp_group = get_parallel().pp_group
        hidden_size, eps = self.config.hidden_size, self.config.rms_norm_eps
        self.fc = _build_fc(hidden_size, quant_config)
        self.pre_fc_norm_embedding = GemmaRMSNorm(hidden_size, eps)
        self.pre_fc_norm_hidden = GemmaRMSNorm(hidden_size, eps)
        self.model = HeadLayers(self.config, quant_config, tables, num_layers)
        self.logits_processor = LogitsProcessor(self.config)
        _share(self, "lm_head", tables.lm_head)

    def get_embed_and_head(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.model.embed_tokens.weight, self.lm_head.weight

    def set_embed_and_head(
        self, embed: torch.Tensor | None, head: torch.Tensor | None
    ) -> None:
        """Accept what is shared already; a reduced head replaces the shared module.

        A token map gives drafting its own rows of ``lm_head``: they are put into a copy
        of the module, so that the target keeps its own.
        """
        if head is not None and head is not self.lm_head.weight:
            reduced = copy.copy(self.lm_head)
            reduced._parameters = dict(self.lm_head._parameters)
            reduced.weight = nn.Parameter(head.data, requires_grad=False)
            _share(self, "lm_head", reduced)

    def set_lm_head_from_target(self, target_lm_head: nn.Module) -> None:
        _share(self, "lm_head", target_lm_head)


class HeadLayers(Qwen3_5ForCausalLM):
    """The head's decoder layers and last norm, without an embedding of their own."""

    def __init__(
        self,
        config,
        quant_config: QuantizationConfig | None,
        tables: SharedTables,
        num_layers: int,
    ) -> None:
        config = copy.deepcopy(config)
        config.num_hidden_layers = num_layers
        config.full_attention_interval = 1
        self._builds_embed_tokens = tables.embed_tokens is None
        super().__init__(config, quant_config, prefix="mtp", is_nextn=True)
        if tables.embed_tokens is not None:
            _share(self, "embed_tokens", tables.embed_tokens)

    def _build_embed_tokens(self, config) -> nn.Module:
        # The last stage of a pipeline has no target embedding to share.
        if self._builds_embed_tokens:
            return super()._build_embed_tokens(config)
        return PPMissingLayer()


class _FullyConnected(ReplicatedLinear):
    """A quantised ``fc``, called as the plain linear module that upstream calls."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)[0]


def _build_fc(hidden_size: int, quant_config: QuantizationConfig | None) -> nn.Module:
    if quant_config is None or quant_config.is_linear_unquantized("mtp.fc"):
        return nn.Linear(2 * hidden_size, hidden_size, bias=False)
    return _FullyConnected(
        2 * hidden_size,
        hidden_size,
        bias=False,
        quant_config=quant_config,
        prefix="mtp.fc",
    )


def _share(module: nn.Module, name: str, shared: nn.Module) -> None:
    """Make ``shared`` an attribute of ``module`` that owns no parameter."""
    module._modules.pop(name, None)
    module.__dict__[name] = shared
