"""A checkpoint's quantisation config, reduced to what concerns its MTP head."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sglang.srt.speculative.nextn.head_config import get_field, get_text_config
from sglang.srt.speculative.nextn.stored_shapes import QuantizationSizes
from sglang.srt.speculative.nextn.weight_index import read_json

# Prefixes that exporters put before the names of the text model's modules.
_PREFIXES = ("", "model.", "language_model.", "model.language_model.")

# The parts that exporters name where the engine builds one module out of them.
_PARTS = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "experts": ("experts.0.gate_proj", "experts.0.up_proj", "experts.0.down_proj"),
}

_LIST_KEYS = ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers")


@dataclass(frozen=True)
class QuantizationConfig:
    """How a checkpoint says that it is quantised.

    Attributes:
        method: `quant_method`, such as "modelopt_fp4" or "compressed-tensors".
        excluded: the list of modules that are not quantised, as written.
        list_key: name of that list in the file.
        quantized: modules that are, where the file names those too; else None.
        sizes: group sizes, bits and block sizes in use.
    """

    method: str
    excluded: tuple[str, ...] = ()
    list_key: str = "ignore"
    quantized: tuple[str, ...] | None = None
    sizes: QuantizationSizes = field(default_factory=QuantizationSizes)

    def says_quantized(self, module: str) -> bool | None:
        """Whether the config says that `module` is quantised.

        `module` is a path as the engine builds it, such as
        "mtp.layers.0.self_attn.qkv_proj". None means that the lists treat its parts
        differently.
        """
        verdicts = {self._says_part_quantized(part) for part in _parts_of(module)}
        return verdicts.pop() if len(verdicts) == 1 else None

    def _says_part_quantized(self, part: str) -> bool:
        names = tuple(prefix + part for prefix in _PREFIXES)
        if _matches_any(self.method, self.excluded, names):
            return False
        if self.quantized is None:
            return True
        return any(
            (
                _matches_regex(entry, name)
                if entry.startswith("re:")
                else f"{name}.".startswith(f"{entry}.") or entry.startswith(f"{name}.")
            )
            for entry in self.quantized
            for name in names
        )


def read_quantization_config(
    config: Any, folder: Path | None = None
) -> QuantizationConfig | None:
    """The quantisation config in `config`, or in hf_quant_config.json in `folder`.

    Returns None for a checkpoint that is not quantised.
    """
    raw = _find_raw(config)
    if raw is None and folder is not None:
        file = folder / "hf_quant_config.json"
        raw = read_json(file) if file.is_file() else None
    if raw is None:
        return None
    producer = raw.get("producer")
    nested = raw.get("quantization")
    if isinstance(nested, Mapping):
        raw = {**raw, **nested}
    list_key = next((key for key in _LIST_KEYS if raw.get(key)), _LIST_KEYS[0])
    return QuantizationConfig(
        method=_method(raw, producer),
        excluded=(*_strings(raw.get(list_key)), *_excluded_by_rule(raw)),
        list_key=list_key,
        quantized=_quantized(raw),
        sizes=_sizes(raw),
    )


def _find_raw(config: Any) -> dict[str, Any] | None:
    for owner in (config, get_text_config(config)):
        for key in ("quantization_config", "compression_config"):
            raw = get_field(owner, key)
            if hasattr(raw, "to_dict"):
                raw = raw.to_dict()
            if isinstance(raw, Mapping) and raw:
                return dict(raw)
    return None


def _method(raw: Mapping[str, Any], producer: Any) -> str:
    """ModelOpt files name an algorithm where others name a method."""
    method = str(raw.get("quant_method") or "").lower()
    algorithm = str(raw.get("quant_algo") or "").upper()
    if algorithm and method in ("", "modelopt"):
        if algorithm == "MIXED_PRECISION":
            return "modelopt_mixed"
        return "modelopt_fp4" if "NVFP4" in algorithm else "modelopt_fp8"
    if not method and isinstance(producer, Mapping):
        method = str(producer.get("name") or "").lower()
    return method or "unknown"


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(entry for entry in value if isinstance(entry, str))


def _excluded_by_rule(raw: Mapping[str, Any]) -> Iterator[str]:
    """GPTQModel writes "-:regex" keys in `dynamic`, AutoRound 16 bits in its extras."""
    for key in _mapping(raw, "dynamic"):
        if key.startswith("-:"):
            yield "re:" + key[2:]
    for key, rule in _mapping(raw, "extra_config").items():
        if isinstance(rule, Mapping) and rule.get("bits") in (16, 32):
            yield key


def _quantized(raw: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Modules named as quantised; None where a class such as "Linear" covers all."""
    layers = raw.get("quantized_layers")
    if isinstance(layers, Mapping):
        return tuple(layers)
    targets = tuple(
        target for group in _groups(raw) for target in _strings(group.get("targets"))
    )
    named = all(target.startswith("re:") or "." in target for target in targets)
    return targets if targets and named else None


def _sizes(raw: Mapping[str, Any]) -> QuantizationSizes:
    defaults = QuantizationSizes()
    settings = (raw, *_group_weights(raw))
    groups = _sizes_named(settings, "group_size", "q_group_size")
    if any(
        s.get("strategy") == "channel" or s.get("group_size") == -1 for s in settings
    ):
        groups = (*groups, -1)
    block = raw.get("weight_block_size")
    if not isinstance(block, (list, tuple)) or not all(map(_is_size, block)):
        block = ()
    return QuantizationSizes(
        group_sizes=groups or defaults.group_sizes,
        bits=_sizes_named(settings, "bits", "w_bit", "num_bits") or defaults.bits,
        block_size=(block[0], block[1]) if len(block) == 2 else defaults.block_size,
    )


def _sizes_named(
    settings: tuple[Mapping[str, Any], ...], *keys: str
) -> tuple[int, ...]:
    values = [setting.get(key) for setting in settings for key in keys]
    return tuple(sorted({value for value in values if _is_size(value)}))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _groups(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for group in _mapping(raw, "config_groups").values():
        if isinstance(group, Mapping):
            yield group


def _mapping(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    return value if isinstance(value, Mapping) else {}


def _group_weights(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for group in _groups(raw):
        weights = group.get("weights")
        if isinstance(weights, Mapping):
            yield weights


def _parts_of(module: str) -> tuple[str, ...]:
    parent, _, name = module.rpartition(".")
    return tuple(f"{parent}.{part}" for part in _PARTS.get(name, (name,)))


def _matches_any(method: str, patterns: Iterable[str], names: tuple[str, ...]) -> bool:
    match = _MATCHERS.get(method, _matches_path)
    return any(
        (
            _matches_regex(pattern, name)
            if pattern.startswith("re:")
            else match(pattern, name)
        )
        for pattern in patterns
        for name in names
    )


def _matches_regex(pattern: str, name: str) -> bool:
    try:
        return re.match(pattern[3:], name) is not None
    except re.error:
        return False


def _matches_wildcard(pattern: str, name: str) -> bool:
    """ModelOpt: a wildcard over the path, a leading part of it, or one word."""
    parts = name.split(".")
    paths = (".".join(parts[: end + 1]) for end in range(len(parts)))
    return any(fnmatch.fnmatchcase(text, pattern) for text in (*paths, *parts))


def _matches_end(pattern: str, name: str) -> bool:
    """compressed-tensors: the path or its end; an entry never covers its children."""
    return name == pattern or name.endswith(f".{pattern}")


def _matches_path(pattern: str, name: str) -> bool:
    """Others: any run of whole words of the path; a trailing `*` is a habit."""
    return f".{pattern.rstrip('.*')}." in f".{name}."


_MATCHERS: dict[str, Callable[[str, str], bool]] = {
    "compressed-tensors": _matches_end,
    "modelopt": _matches_wildcard,
    "modelopt_fp4": _matches_wildcard,
    "modelopt_fp8": _matches_wildcard,
    "modelopt_mixed": _matches_wildcard,
}
