"""What a checkpoint stores for each module of its MTP head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sglang.srt.speculative.nextn.checkpoint import HeadCheckpoint
from sglang.srt.speculative.nextn.head_config import HeadConfig
from sglang.srt.speculative.nextn.layout import (
    Module,
    ModuleKind,
    count_layers,
    head_layout,
    is_unused_tensor,
)
from sglang.srt.speculative.nextn.quantization_config import QuantizationConfig
from sglang.srt.speculative.nextn.safetensors_header import HeadTensor
from sglang.srt.speculative.nextn.schemes import (
    SCHEMES,
    SUFFIXES,
    UNQUANTIZED,
    Scheme,
    detect_scheme,
)
from sglang.srt.speculative.nextn.stored_shapes import QuantizationSizes


@dataclass(frozen=True)
class StoredModule:
    """A module, the tensors found for it by suffix, and the scheme that they follow."""

    module: Module
    scheme: Scheme
    found: Mapping[str, HeadTensor]


@dataclass(frozen=True)
class Inventory:
    """Every module that the head must have, and the tensors that belong to none."""

    modules: tuple[StoredModule, ...]
    left_over: tuple[HeadTensor, ...]
    sizes: QuantizationSizes


def take_inventory(
    checkpoint: HeadCheckpoint,
    config: HeadConfig,
    quantization: QuantizationConfig | None,
) -> Inventory:
    """Assign each of the checkpoint's head tensors to a module of the head.

    The number of layers is the config's, or the weights' where the config is silent.
    """
    tensors = checkpoint.tensors
    sizes = quantization.sizes if quantization else QuantizationSizes()
    method = quantization.method if quantization else None
    num_layers = config.num_layers
    if num_layers is None:
        num_layers = count_layers(tensors)
    names = tensors.keys() | checkpoint.absent.keys()
    modules = tuple(
        _store(module, tensors, sizes, method)
        for choice in head_layout(config, num_layers)
        for module in choice.forms[choice.pick(names, SUFFIXES)]
    )
    used = {tensor.name for stored in modules for tensor in stored.found.values()}
    left_over = tuple(
        tensor
        for name, tensor in tensors.items()
        if name not in used and not is_unused_tensor(name)
    )
    return Inventory(modules, left_over, sizes)


def _store(
    module: Module,
    tensors: Mapping[str, HeadTensor],
    sizes: QuantizationSizes,
    method: str | None,
) -> StoredModule:
    found = {
        suffix: tensors[name]
        for suffix in SUFFIXES
        if (name := module.tensor_name(suffix)) in tensors
    }
    if module.kind is ModuleKind.NORM or not found:
        scheme = SCHEMES[UNQUANTIZED]
    else:
        scheme = detect_scheme(found, module.shape, sizes, method)
    known = {suffix: t for suffix, t in found.items() if suffix in scheme.tensors}
    return StoredModule(module, scheme, known)
