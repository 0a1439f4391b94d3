"""Reads the resolution journal: what was asked, and which rule changed it last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sglang.srt.arg_groups.arg_utils import with_fallback
from sglang.srt.arg_groups.remap.effective import State, effective_value

# Rules that fetch what a name stands for: the setting keeps its meaning.
FETCHING_RULES = ("_resolve_hf_gguf_model_path", "_handle_modelscope_paths")


def decisions(server_args: Any) -> Iterator[tuple[str, State]]:
    """Yield each rule's name with every field's value after it, in order.

    The decisions that the model's configuration takes by itself come last.
    """
    decided = dict(server_args._raw_input)
    for rule, declared in server_args._resolved_overrides:
        if rule not in FETCHING_RULES:
            decided.update(declared)
            yield rule, decided
    for rule, changed in _model_config_decisions(server_args, decided):
        decided.update(changed)
        yield rule, decided


def trace(server_args: Any, setting: str) -> tuple[Any, str | None]:
    """Return the value that runs for a setting, and the rule that changed it last.

    The rule is None if nothing did.
    """
    raw = server_args._raw_input
    value, deciding_rule = raw[setting], None
    for rule, decided in decisions(server_args):
        new = effective_value(setting, decided, raw)
        if new != value:
            value, deciding_rule = new, rule
    return with_fallback(type(server_args), setting, value), deciding_rule


def _model_config_decisions(
    server_args: Any, decided: State
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what ``ModelConfig`` decided about settings that it was given.

    A configuration that was built before a rule changed the setting says nothing.
    """
    model_config = getattr(server_args, "_model_config", None)
    if model_config is None:
        return
    quantization = getattr(model_config, "quantization", None)
    if decided["quantization"] == server_args._raw_input["quantization"] is not None:
        yield "ModelConfig._verify_quantization", {"quantization": quantization}
    dtype = str(getattr(model_config, "dtype", "")).removeprefix("torch.")
    if decided["dtype"] == server_args._raw_input["dtype"] != "auto" and dtype:
        yield "ModelConfig.dtype", {"dtype": dtype}
    context_len = getattr(model_config, "context_len", None)
    if decided["context_length"] is not None and context_len is not None:
        yield "ModelConfig.context_len", {"context_length": context_len}
