"""The modules of a Qwen3.5 MTP head, and the ways in which checkpoints store them.

The layout is that of `models/qwen3_5_mtp.py` in SGLang: `fc` joins the normed embedding
and the normed hidden state, then come full-attention layers and a last norm. The head
has no `embed_tokens` and no `lm_head`: it uses the target's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from sglang.srt.speculative.nextn.head_config import HeadConfig, SparseMLP

_LAYER = re.compile(r"mtp\.layers\.(\d+)\.")
_EXPERT = re.compile(r"\.mlp\.experts\.(\d+)\.")

# Tensors that some exporters add and that no parameter of the head takes.
_UNUSED = re.compile(
    r"mtp\.layers\.\d+\.self_attn\.(?:rotary_emb\.inv_freq"
    r"|(?:k_proj\.|v_proj\.)?[kv]_scale)"
)


class ModuleKind(Enum):
    """How a module's tensors are named and which of its forms can be quantised."""

    NORM = "norm"
    LINEAR = "linear"
    PACKED_EXPERTS = "packed experts"


@dataclass(frozen=True)
class Module:
    """One weight of the head, by the name that checkpoints give it.

    Attributes:
        name: path of the module, such as "mtp.layers.0.self_attn.q_proj".
        shape: of the unquantised weight: [out, in], [size] for a norm, and
            [experts, out, in] for packed experts.
        built_as: path of the module that the engine builds it into, such as
            "mtp.layers.0.self_attn.qkv_proj".
    """

    name: str
    shape: tuple[int, ...]
    kind: ModuleKind
    built_as: str

    def tensor_name(self, suffix: str) -> str:
        """Name of this module's tensor `suffix`, such as "weight" or "weight_scale"."""
        if self.kind is not ModuleKind.PACKED_EXPERTS:
            return f"{self.name}.{suffix}"
        return self.name + suffix.removeprefix("weight")


@dataclass(frozen=True)
class Choice:
    """Forms of one part of the head; a checkpoint stores exactly one of them."""

    forms: tuple[tuple[Module, ...], ...]

    def pick(self, tensor_names: Collection[str], suffixes: Iterable[str]) -> int:
        """Index of the form that most of `tensor_names` belong to; 0 on a draw."""
        suffixes = tuple(suffixes)
        shares = [
            sum(
                any(module.tensor_name(suffix) in tensor_names for suffix in suffixes)
                for module in form
            )
            / len(form)
            for form in self.forms
        ]
        return shares.index(max(shares))


def head_layout(config: HeadConfig, num_layers: int) -> tuple[Choice, ...]:
    """Every part of a head of `num_layers` layers, in the order of the forward pass."""
    hidden = config.hidden_size
    choices = [
        _only(_norm("mtp.pre_fc_norm_embedding", hidden)),
        _only(_norm("mtp.pre_fc_norm_hidden", hidden)),
        _only(_linear("mtp.fc", hidden, 2 * hidden)),
    ]
    if config.dedicated_embeddings:
        choices.append(_only(_linear("mtp.embed_tokens", config.vocab_size, hidden)))
    for index in range(num_layers):
        layer = f"mtp.layers.{index}"
        choices += [
            _only(_norm(f"{layer}.input_layernorm", hidden)),
            *_attention(f"{layer}.self_attn", config),
            _only(_norm(f"{layer}.post_attention_layernorm", hidden)),
            *_mlp(f"{layer}.mlp", config),
        ]
    return (*choices, _only(_norm("mtp.norm", hidden)))


def count_layers(tensor_names: Iterable[str]) -> int:
    """How many layers `tensor_names` speak of: the highest index and one."""
    indices = (_LAYER.match(name) for name in tensor_names)
    return max((int(match.group(1)) + 1 for match in indices if match), default=0)


def count_experts(tensor_names: Iterable[str]) -> int:
    """How many experts `tensor_names` store one by one; 0 for dense or packed."""
    indices = (_EXPERT.search(name) for name in tensor_names)
    return max((int(match.group(1)) + 1 for match in indices if match), default=0)


def is_unused_tensor(name: str) -> bool:
    """Whether a head may carry `name` although nothing needs it."""
    return _UNUSED.fullmatch(name) is not None


def _attention(prefix: str, config: HeadConfig) -> tuple[Choice, ...]:
    hidden, query, key_value = (
        config.hidden_size,
        config.query_size,
        config.key_value_size,
    )
    rows = {"q_proj": query, "k_proj": key_value, "v_proj": key_value}
    return (
        _split_or_fused(prefix, "qkv_proj", rows, hidden),
        _only(_norm(f"{prefix}.q_norm", config.head_dim)),
        _only(_norm(f"{prefix}.k_norm", config.head_dim)),
        _only(_linear(f"{prefix}.o_proj", hidden, config.attention_size)),
    )


def _mlp(prefix: str, config: HeadConfig) -> tuple[Choice, ...]:
    if not isinstance(config.mlp, SparseMLP):
        return _gated_mlp(prefix, config.hidden_size, config.mlp.intermediate_size)
    mlp, hidden = config.mlp, config.hidden_size
    choices = (
        _only(_linear(f"{prefix}.gate", mlp.num_experts, hidden)),
        _experts(f"{prefix}.experts", mlp, hidden),
    )
    shared_size = mlp.shared_expert_intermediate_size
    if not shared_size:
        return choices
    return (
        *choices,
        *_gated_mlp(f"{prefix}.shared_expert", hidden, shared_size),
        _only(_linear(f"{prefix}.shared_expert_gate", 1, hidden)),
    )


def _gated_mlp(prefix: str, hidden: int, intermediate: int) -> tuple[Choice, ...]:
    rows = {"gate_proj": intermediate, "up_proj": intermediate}
    return (
        _split_or_fused(prefix, "gate_up_proj", rows, hidden),
        _only(_linear(f"{prefix}.down_proj", hidden, intermediate)),
    )


def _experts(prefix: str, mlp: SparseMLP, hidden: int) -> Choice:
    size, count = mlp.moe_intermediate_size, mlp.num_experts
    shapes = {
        "gate_proj": (size, hidden),
        "up_proj": (size, hidden),
        "down_proj": (hidden, size),
    }
    separate = tuple(
        _linear(f"{prefix}.{expert}.{name}", *shape, built_as=prefix)
        for expert in range(count)
        for name, shape in shapes.items()
    )
    packed = tuple(
        Module(f"{prefix}.{name}", shape, ModuleKind.PACKED_EXPERTS, prefix)
        for name, shape in (
            ("gate_up_proj", (count, 2 * size, hidden)),
            ("down_proj", (count, hidden, size)),
        )
    )
    return Choice((separate, packed))


def _split_or_fused(
    prefix: str, fused: str, rows: dict[str, int], columns: int
) -> Choice:
    built_as = f"{prefix}.{fused}"
    split = tuple(
        _linear(f"{prefix}.{name}", size, columns, built_as=built_as)
        for name, size in rows.items()
    )
    return Choice((split, (_linear(built_as, sum(rows.values()), columns),)))


def _norm(name: str, size: int) -> Module:
    return Module(name, (size,), ModuleKind.NORM, name)


def _linear(name: str, rows: int, columns: int, built_as: str = "") -> Module:
    return Module(name, (rows, columns), ModuleKind.LINEAR, built_as or name)


def _only(module: Module) -> Choice:
    return Choice(((module,),))
