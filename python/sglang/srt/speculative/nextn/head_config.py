"""The numbers in a target's config that fix the shape of its MTP head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sglang.srt.speculative.nextn.safetensors_header import CheckpointError

# Values that the Qwen3.5 configuration classes use where config.json is silent.
_DEFAULTS = {
    "head_dim": 256,
    "attn_output_gate": True,
    "tie_word_embeddings": False,
    "mtp_use_dedicated_embeddings": False,
}


@dataclass(frozen=True)
class DenseMLP:
    """Sizes of a gated MLP: `gate_proj` and `up_proj` are [intermediate, hidden]."""

    intermediate_size: int


@dataclass(frozen=True)
class SparseMLP:
    """Sizes of a mixture of experts with an optional shared expert (size 0: none)."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_expert_intermediate_size: int


@dataclass(frozen=True)
class HeadConfig:
    """What the target's config says about its MTP head.

    Attributes:
        num_layers: `mtp_num_hidden_layers`; None when the config does not say.
    """

    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    attn_output_gate: bool
    vocab_size: int
    tie_word_embeddings: bool
    dedicated_embeddings: bool
    num_layers: int | None
    mlp: DenseMLP | SparseMLP

    @property
    def query_size(self) -> int:
        """Rows of `q_proj`: the output gate, where there is one, doubles them."""
        return self.num_attention_heads * self.head_dim * (1 + self.attn_output_gate)

    @property
    def key_value_size(self) -> int:
        """Rows of `k_proj`, and of `v_proj`."""
        return self.num_key_value_heads * self.head_dim

    @property
    def attention_size(self) -> int:
        """Columns of `o_proj`."""
        return self.num_attention_heads * self.head_dim


def get_field(config: Any, name: str, default: Any = None) -> Any:
    """`name` of a config.json object or of a transformers config, else `default`."""
    if isinstance(config, Mapping):
        return config.get(name, default)
    return getattr(config, name, default)


def get_text_config(config: Any) -> Any:
    """The text backbone's part of a multimodal config, or the config itself."""
    text = get_field(config, "text_config")
    return config if text is None else text


def get_architecture(config: Any) -> str | None:
    """The first of the config's `architectures`."""
    architectures = get_field(config, "architectures")
    if not isinstance(architectures, (list, tuple)) or not architectures:
        return None
    return str(architectures[0])


def read_head_config(config: Any) -> HeadConfig:
    """Read the head's sizes from a config.json object or a transformers config.

    Raises:
        CheckpointError: a size that the head needs is not in the config.
    """
    text = get_text_config(config)

    def get(name: str) -> Any:
        value = get_field(text, name)
        return _DEFAULTS.get(name) if value is None else value

    def require(name: str, minimum: int = 1) -> int:
        value = get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise CheckpointError(
                f'config.json: "{name}" is {value!r}; the MTP head needs a whole '
                f"number of at least {minimum} there."
            )
        return value

    num_layers = get_field(text, "mtp_num_hidden_layers")
    if num_layers is not None:
        num_layers = require("mtp_num_hidden_layers", 0)
    tied = get_field(config, "tie_word_embeddings")
    return HeadConfig(
        hidden_size=require("hidden_size"),
        num_attention_heads=require("num_attention_heads"),
        num_key_value_heads=require("num_key_value_heads"),
        head_dim=require("head_dim"),
        attn_output_gate=bool(get("attn_output_gate")),
        vocab_size=require("vocab_size"),
        tie_word_embeddings=bool(get("tie_word_embeddings") if tied is None else tied),
        dedicated_embeddings=bool(get("mtp_use_dedicated_embeddings")),
        num_layers=num_layers,
        mlp=_read_mlp(config, text, require),
    )


def _read_mlp(
    config: Any, text: Any, require: Callable[..., int]
) -> DenseMLP | SparseMLP:
    if not _is_sparse(config, text):
        return DenseMLP(require("intermediate_size"))
    shared = "shared_expert_intermediate_size"
    return SparseMLP(
        num_experts=require("num_experts"),
        num_experts_per_tok=require("num_experts_per_tok"),
        moe_intermediate_size=require("moe_intermediate_size"),
        shared_expert_intermediate_size=(
            0 if get_field(text, shared) is None else require(shared, 0)
        ),
    )


def _is_sparse(config: Any, text: Any) -> bool:
    """Dense Qwen3.5 configs inherit expert counts, so only the model type tells."""
    model_type = get_field(text, "model_type") or get_field(config, "model_type")
    if model_type:
        return "_moe" in str(model_type)
    return "Moe" in (get_architecture(config) or "")
