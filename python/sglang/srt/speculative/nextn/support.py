"""Whether the native NEXTN worker can serve a model, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang.srt.speculative.nextn.architectures import (
    Architecture,
    find_architecture,
)
from sglang.srt.speculative.nextn.checkpoint import read_head_checkpoint
from sglang.srt.speculative.nextn.completeness import IncompleteHeadError
from sglang.srt.speculative.nextn.head_config import (
    get_architecture,
    get_field,
    get_text_config,
)
from sglang.srt.speculative.nextn.head_plan import HeadPlan, plan_head
from sglang.srt.speculative.nextn.local_model import find_local_model
from sglang.srt.speculative.nextn.safetensors_header import (
    CheckpointError,
    NoSafetensorsError,
)


@dataclass(frozen=True)
class NextnSupport:
    """The answer to "will NEXTN run natively here?".

    Attributes:
        native: the native worker serves this model; False whenever `error` is set.
        reason: one sentence on why, for the log.
        architecture: the target's, or None when its config names none.
        draft_architecture: the class that serves the head under EAGLE, if any does.
        has_head: whether the checkpoint has a head; None when its files are not here.
        plan: the head, when the native worker serves it and its files are here.
        error: why a model that the native worker should serve cannot be: its head is
            absent or incomplete, or a file is damaged.
    """

    native: bool
    reason: str
    architecture: str | None
    draft_architecture: str | None = None
    has_head: bool | None = None
    plan: HeadPlan | None = None
    error: ValueError | None = None


def nextn_support(
    model_path: str,
    hf_config: Any,
    *,
    revision: str | None = None,
    check_weights: bool = True,
) -> NextnSupport:
    """Decide from a config and, where they are on this machine, the weights' headers.

    Args:
        model_path: what the user gave as --model-path.
        hf_config: the target's config, from transformers or as config.json's object.
        revision: of a Hugging Face repository.
        check_weights: False for load formats that read no checkpoint, such as dummy.

    Never loads a weight, never uses the network, never raises for a bad checkpoint:
    `error` carries it. Weights that are not here yet are checked when they are loaded.
    """
    name = get_architecture(hf_config)
    architecture = find_architecture(hf_config)
    if architecture is None:
        return NextnSupport(
            False, f"{name or 'this model'} has no MTP head that SGLang knows.", name
        )
    path = find_local_model(model_path, revision) if check_weights else None
    if not architecture.native:
        return _not_native(
            architecture,
            f"{architecture.name} is not served by the native worker: "
            f"{architecture.reason}.",
            _has_head(path, architecture, hf_config),
        )
    if path is None:
        return _without_weights(architecture, hf_config, check_weights)
    return _with_weights(architecture, hf_config, path)


def _not_native(
    architecture: Architecture, reason: str, has_head: bool | None
) -> NextnSupport:
    return NextnSupport(
        False, reason, architecture.name, architecture.draft_architecture, has_head
    )


def _has_head(
    path: Path | None, architecture: Architecture, config: Any
) -> bool | None:
    if path is None:
        return None
    try:
        checkpoint = read_head_checkpoint(path, architecture.head_matcher(config))
    except CheckpointError:
        return None
    return bool(checkpoint.tensors or checkpoint.absent)


def _without_weights(
    architecture: Architecture, config: Any, check_weights: bool
) -> NextnSupport:
    why = (
        "its weights are not on this machine yet; the head is checked when they load"
        if check_weights
        else "the load format reads no checkpoint"
    )
    if get_field(get_text_config(config), "mtp_num_hidden_layers", 1) == 0:
        return _not_native(
            architecture, "config.json says mtp_num_hidden_layers = 0.", False
        )
    return NextnSupport(
        True,
        f"{architecture.name} is served natively: {why}.",
        architecture.name,
        architecture.draft_architecture,
    )


def _with_weights(architecture: Architecture, config: Any, path: Path) -> NextnSupport:
    try:
        plan = plan_head(path, config)
    except NoSafetensorsError as error:
        return _not_native(
            architecture,
            f"The native worker reads safetensors weights only: {error}",
            None,
        )
    except (CheckpointError, IncompleteHeadError) as error:
        has_head = None
        if isinstance(error, IncompleteHeadError):
            has_head = bool(error.problems)
        return NextnSupport(
            False,
            str(error),
            architecture.name,
            architecture.draft_architecture,
            has_head,
            error=error,
        )
    return NextnSupport(
        True,
        f"{architecture.name} is served natively: {len(plan.checkpoint.tensors)} MTP "
        f"tensors in {len(plan.checkpoint.head_shards)} of "
        f"{len(plan.checkpoint.shards)} shards.",
        architecture.name,
        architecture.draft_architecture,
        True,
        plan,
    )
