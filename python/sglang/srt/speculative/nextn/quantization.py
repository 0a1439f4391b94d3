"""Which parts of an MTP head are quantised, decided once from its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sglang.srt.speculative.nextn.inventory import Inventory, StoredModule
from sglang.srt.speculative.nextn.layout import ModuleKind
from sglang.srt.speculative.nextn.quantization_config import QuantizationConfig
from sglang.srt.speculative.nextn.schemes import SCHEMES, UNQUANTIZED, Scheme


@dataclass(frozen=True)
class Disagreement:
    """A module that the quantisation config and the tensors describe differently.

    Attributes:
        module: path as the engine builds it.
        list_key: name of the config's list of exceptions, such as "ignore".
        listed: what the config says: quantised or not; None if it says both.
        stored: label of what the tensors are.
    """

    module: str
    list_key: str
    listed: bool | None
    stored: str

    def __str__(self) -> str:
        listed = {
            True: "does not exclude it",
            False: "excludes it",
            None: "excludes some of its parts only",
        }[self.listed]
        return (
            f"{self.module}: `{self.list_key}` of the quantization config {listed}; "
            f"stored as {self.stored}"
        )


@dataclass(frozen=True)
class HeadQuantization:
    """How each linear and expert module of a head is stored.

    Attributes:
        schemes: scheme by module path as the engine builds it, such as
            "mtp.layers.0.self_attn.qkv_proj", "mtp.layers.0.mlp.experts" or "mtp.fc".
        labels: the same for people; an unquantised module has its dtype.
        disagreements: where the quantisation config says something else. The tensors
            decide; these are only reported.
    """

    schemes: Mapping[str, Scheme]
    labels: Mapping[str, str]
    disagreements: tuple[Disagreement, ...] = ()

    def is_quantized(self, module: str) -> bool:
        """Whether `module`, a path as the engine builds it, is quantised."""
        return self.schemes[module].is_quantized

    @property
    def any_quantized(self) -> bool:
        return any(scheme.is_quantized for scheme in self.schemes.values())

    def __str__(self) -> str:
        """Labels and the modules that have them; the label alone if all have one."""
        by_label: dict[str, list[str]] = {}
        for module, label in self.labels.items():
            by_label.setdefault(label, []).append(module)
        if len(by_label) < 2:
            return next(iter(by_label), "none")
        return "; ".join(
            f"{label}: {', '.join(modules)}" for label, modules in by_label.items()
        )


def decide_quantization(
    inventory: Inventory, config: QuantizationConfig | None
) -> HeadQuantization:
    """Decide from the tensors; compare with `config`, whose lists decide nothing.

    Where parts that the engine fuses differ, the first quantised one speaks for the
    module; `completeness` reports them.
    """
    schemes: dict[str, Scheme] = {}
    labels: dict[str, str] = {}
    for stored in inventory.modules:
        path = stored.module.built_as
        if stored.module.kind is ModuleKind.NORM:
            continue
        if path not in schemes or (
            stored.scheme.is_quantized and not schemes[path].is_quantized
        ):
            schemes[path], labels[path] = stored.scheme, _label(stored)
    return HeadQuantization(schemes, labels, _compare(schemes, labels, config))


def _label(stored: StoredModule) -> str:
    if stored.scheme.is_quantized:
        return stored.scheme.label
    weight = stored.found.get("weight")
    return (weight.dtype if weight else None) or SCHEMES[UNQUANTIZED].label


# The router and the shared expert's gate, which no engine and no exporter quantises.
_NEVER_QUANTIZED = (".mlp.gate", ".shared_expert_gate")


def _compare(
    schemes: Mapping[str, Scheme],
    labels: Mapping[str, str],
    config: QuantizationConfig | None,
) -> tuple[Disagreement, ...]:
    list_key = config.list_key if config else "ignore"
    disagreements = []
    for module, scheme in schemes.items():
        listed = config.says_quantized(module) if config else False
        if listed == scheme.is_quantized:
            continue
        if not scheme.is_quantized and module.endswith(_NEVER_QUANTIZED):
            continue
        disagreements.append(Disagreement(module, list_key, listed, labels[module]))
    return tuple(disagreements)
