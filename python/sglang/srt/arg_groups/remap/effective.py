"""The value that will run for a setting, and when it is the one that was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sglang.srt.model_executor.cuda_graph_config import Backend, Phase

# Field values by name.
State = Mapping[str, Any]
# Reads a setting's value from what is decided and what was asked, both by field.
Read = Callable[[State, State], Any]


def effective_value(setting: str, decided: State, raw: State) -> Any:
    """Return the value of a setting once ``decided`` holds.

    Args:
        setting: a field of ``ServerArgs``.
        decided: every field's value, declarations so far on top of the raw input.
        raw: every field's raw input.
    """
    read = _EFFECTIVE.get(setting)
    return read(decided, raw) if read is not None else decided[setting]


def is_same(setting: str, asked: Any, effective: Any) -> bool:
    """Whether ``effective`` is what was asked for, in another spelling at most."""
    if asked in _DELEGATED or asked == effective:
        return True
    if isinstance(asked, str) and asked in _SYNONYMS.get(setting, {}):
        return bool(_SYNONYMS[setting][asked] == effective)
    if setting in _CASELESS and isinstance(effective, str):
        return bool(asked.upper() == effective.upper())
    if isinstance(asked, str) and not isinstance(effective, str):
        return _parsed(asked) == effective
    if isinstance(asked, list | tuple) and isinstance(effective, list | tuple):
        return [*asked] == [*effective]
    return False


# The user leaves the choice to the server.
_DELEGATED = (None, "auto")
_CASELESS = ("speculative_algorithm",)
# Two spellings of one value.
_SYNONYMS: dict[str, dict[str, Any]] = {
    "dtype": {"half": "float16", "float": "float32"},
    "kv_cache_dtype": {"bf16": "bfloat16"},
    "quantization": {"unquant": None},
    "speculative_draft_model_quantization": {"unquant": None},
}


def _graph_value(phase: str, key: str, field: str) -> Read:
    def read(decided: State, raw: State) -> Any:
        config = decided["cuda_graph_config"]
        if not _is_parsed(config):
            return raw[field]
        return getattr(getattr(config, phase), key)

    return read


def _graphs_off(field: str, *phases: str) -> Read:
    def read(decided: State, raw: State) -> Any:
        config = decided["cuda_graph_config"]
        if not _is_parsed(config):
            return raw[field]
        return all(
            getattr(config, phase).backend == Backend.DISABLED for phase in phases
        )

    return read


def _graph_config(decided: State, raw: State) -> Any:
    """The keys of ``--cuda-graph-config`` that the user gave, as they will run."""
    config, asked = decided["cuda_graph_config"], raw["cuda_graph_config"]
    if not _is_parsed(config) or not asked or _is_parsed(asked):
        return config
    return {
        phase: {key: getattr(getattr(config, phase), key) for key in keys}
        for phase, keys in asked.items()
    }


def _is_parsed(config: Any) -> bool:
    return hasattr(config, Phase.DECODE) and hasattr(config, Phase.PREFILL)


def _attention_dp(decided: State, raw: State) -> Any:
    return decided["enable_dp_attention"] or decided["attn_dp_size"] > 1


def _dp_size(decided: State, raw: State) -> Any:
    """``--dp-size N --enable-dp-attention`` is the old name of ``--attn-dp-size N``."""
    if raw["enable_dp_attention"] and raw["attn_dp_size"] == 1:
        return max(decided["dp_size"], decided["attn_dp_size"])
    return decided["dp_size"]


def _flashinfer_fusion(decided: State, raw: State) -> Any:
    return (
        decided["enable_flashinfer_allreduce_fusion"]
        or decided["flashinfer_allreduce_fusion_backend"] is not None
    )


# Settings that take effect in another field.
_EFFECTIVE: dict[str, Read] = {
    "cuda_graph_config": _graph_config,
    "disable_cuda_graph": _graphs_off("disable_cuda_graph", *Phase.ALL),
    "disable_decode_cuda_graph": _graphs_off("disable_decode_cuda_graph", Phase.DECODE),
    "disable_prefill_cuda_graph": _graphs_off(
        "disable_prefill_cuda_graph", Phase.PREFILL
    ),
    "enable_dp_attention": _attention_dp,
    "dp_size": _dp_size,
    "enable_flashinfer_allreduce_fusion": _flashinfer_fusion,
} | {
    field: _graph_value(phase, key, field)
    for field, phase, key in (
        ("cuda_graph_backend_decode", Phase.DECODE, "backend"),
        ("cuda_graph_backend_prefill", Phase.PREFILL, "backend"),
        ("cuda_graph_max_bs_decode", Phase.DECODE, "max_bs"),
        ("cuda_graph_max_bs_prefill", Phase.PREFILL, "max_bs"),
        ("cuda_graph_bs_decode", Phase.DECODE, "bs"),
        ("cuda_graph_bs_prefill", Phase.PREFILL, "bs"),
        ("cuda_graph_max_seq_len_prefill", Phase.PREFILL, "max_seq_len"),
        ("cuda_graph_prefill_max_context", Phase.PREFILL, "max_context_size"),
    )
}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
