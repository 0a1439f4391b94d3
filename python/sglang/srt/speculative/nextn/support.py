"""Whether the native NEXTN worker can serve a model, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang.srt.arg_groups.launch_error import LaunchError
from sglang.srt.speculative.nextn.architectures import (
    Architecture,
    find_architecture,
)
from sglang.srt.speculative.nextn.checkpoint import (
    HeadCheckpoint,
    read_head_checkpoint,
)
from sglang.srt.speculative.nextn.completeness import (
    IncompleteHeadError,
    incomplete_head_error,
)
from sglang.srt.speculative.nextn.head_config import (
    get_architecture,
    get_field,
    get_text_config,
    read_head_config,
)
from sglang.srt.speculative.nextn.head_plan import HeadPlan, draft_plan
from sglang.srt.speculative.nextn.local_model import find_local_model
from sglang.srt.speculative.nextn.quantization_config import read_quantization_config
from sglang.srt.speculative.nextn.safetensors_header import (
    CheckpointError,
    NoSafetensorsError,
)


@dataclass(frozen=True)
class NextnSupport:
    """The answer to "will NEXTN run natively here?".

    Attributes:
        native: the native worker serves this model; False whenever `error` is set.
        reason: why, in words for the log.
        architecture: the target's, or None when its config names none.
        draft_architecture: the class that serves the head under EAGLE, if any does.
        has_head: whether the checkpoint has a head; None when its files are not here.
        checkpoint: where the head is, when its files are here.
        plan: the head's parts, for architectures that the native worker serves.
        error: why the files are no use: the head of a native architecture is absent or
            incomplete, or one of them is damaged.
    """

    native: bool
    reason: str
    architecture: str | None
    draft_architecture: str | None = None
    has_head: bool | None = None
    checkpoint: HeadCheckpoint | None = None
    plan: HeadPlan | None = None
    error: LaunchError | None = None


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
    if not check_weights:
        return _by_config(hf_config, "the load format reads no checkpoint")
    path = find_local_model(model_path, revision)
    if path is None:
        return _by_config(
            hf_config,
            "its weights are not on this machine yet, and are checked when they load",
        )
    return support_of(path, hf_config)


def support_of(
    path: Path, hf_config: Any, *, read_shared: bool = False
) -> NextnSupport:
    """Decide for the checkpoint folder or index file at `path`.

    Args:
        read_shared: as for `read_head_checkpoint`.
    """
    architecture = find_architecture(hf_config)
    if architecture is None:
        return _unknown(hf_config)
    try:
        checkpoint = read_head_checkpoint(
            path, architecture.head_matcher(hf_config), read_shared=read_shared
        )
    except NoSafetensorsError as error:
        reason = f"The native worker reads safetensors weights only: {error}"
        return _answer(architecture, reason)
    except CheckpointError as error:
        return _answer(architecture, str(error), error=error)
    if not architecture.native:
        return _answer(
            architecture,
            _why_not_native(architecture),
            has_head=bool(checkpoint.tensors or checkpoint.absent),
            checkpoint=checkpoint,
        )
    return _check_head(architecture, checkpoint, hf_config)


def _check_head(
    architecture: Architecture, checkpoint: HeadCheckpoint, config: Any
) -> NextnSupport:
    try:
        plan = draft_plan(
            checkpoint,
            read_head_config(config),
            read_quantization_config(config, checkpoint.root),
        )
    except (CheckpointError, IncompleteHeadError) as error:
        has_head = bool(checkpoint.tensors or checkpoint.absent)
        return _answer(
            architecture,
            str(error),
            has_head=has_head,
            checkpoint=checkpoint,
            error=error,
        )
    facts: dict[str, Any] = {
        "has_head": True,
        "checkpoint": checkpoint,
        "plan": plan,
    }
    if plan.problems:
        incomplete = incomplete_head_error(checkpoint, plan.problems)
        return _answer(architecture, str(incomplete), error=incomplete, **facts)
    reason = (
        f"{architecture.name} is served natively: {len(checkpoint.tensors)} MTP "
        f"tensors in {len(checkpoint.head_shards)} of {len(checkpoint.shards)} shards."
    )
    return _answer(architecture, reason, native=True, **facts)


def _by_config(config: Any, why_no_weights: str) -> NextnSupport:
    architecture = find_architecture(config)
    if architecture is None:
        return _unknown(config)
    if not architecture.native:
        return _answer(architecture, _why_not_native(architecture))
    if get_field(get_text_config(config), "mtp_num_hidden_layers") == 0:
        reason = "config.json says mtp_num_hidden_layers = 0."
        return _answer(architecture, reason, has_head=False)
    reason = f"{architecture.name} is served natively: {why_no_weights}."
    return _answer(architecture, reason, native=True)


def _unknown(config: Any) -> NextnSupport:
    name = get_architecture(config)
    return NextnSupport(
        False, f"{name or 'This model'} has no MTP head that SGLang knows.", name
    )


def _why_not_native(architecture: Architecture) -> str:
    return (
        f"{architecture.name} is not served by the native worker: "
        f"{architecture.reason}."
    )


def _answer(
    architecture: Architecture, reason: str, *, native: bool = False, **facts: Any
) -> NextnSupport:
    return NextnSupport(
        native,
        reason,
        architecture.name,
        architecture.draft_architecture,
        **facts,
    )
