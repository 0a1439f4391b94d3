"""The sizes of the model."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Architecture:
    """Sizes under the names of config.json; the defaults are those we train.

    `num_experts` 0 means dense MLPs of `intermediate_size`.
    """

    vocab_size: int = 1024
    hidden_size: int = 192
    num_hidden_layers: int = 4
    full_attention_interval: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 512
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 4
    linear_key_head_dim: int = 64
    linear_value_head_dim: int = 64
    linear_conv_kernel_dim: int = 4
    rotary_dim: int = 16
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 2048
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    shared_expert_intermediate_size: int = 0

    @property
    def layer_types(self) -> list[str]:
        interval = self.full_attention_interval
        return [
            "full_attention" if (layer + 1) % interval == 0 else "linear_attention"
            for layer in range(self.num_hidden_layers)
        ]

    @property
    def linear_key_dim(self) -> int:
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def linear_value_dim(self) -> int:
        return self.linear_num_value_heads * self.linear_value_head_dim

    @classmethod
    def from_text_config(cls, config: dict[str, Any]) -> "Architecture":
        """Read the sizes back from `text_config` of a config.json."""
        rope = config["rope_parameters"]
        read = {
            name: config[name] for name in cls.__dataclass_fields__ if name in config
        }
        return cls(
            **read,
            rotary_dim=int(config["head_dim"] * rope["partial_rotary_factor"]),
            rope_theta=rope["rope_theta"],
        )
