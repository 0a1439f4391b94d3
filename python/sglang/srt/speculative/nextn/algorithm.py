"""Decides, while arguments are resolved, what a request for NEXTN becomes."""

from __future__ import annotations

from typing import Any

from sglang.srt.arg_groups.launch_error import LaunchError
from sglang.srt.arg_groups.overrides import record_of
from sglang.srt.arg_groups.remap.reasons import give_reason
from sglang.srt.speculative.nextn.head_config import get_field, get_text_config
from sglang.srt.speculative.nextn.support import NextnSupport, nextn_support

# The name of this rule in the resolution journal.
RULE = "resolve_nextn_algorithm"
# Formats whose files are safetensors on this machine, and the one without files.
NATIVE_LOAD_FORMATS = ("auto", "safetensors", "layered", "dummy")


def resolve_nextn_algorithm(cfg: Any, hf_config: Any) -> str:
    """Return the algorithm that serves a request for NEXTN: NEXTN or EAGLE.

    The remap report says why it is EAGLE. Reads headers of the checkpoint at most.

    Args:
        cfg: the resolving view of the server arguments.
        hf_config: the target's configuration.

    Raises:
        LaunchError: the model has no MTP head that anything could draft with, or the
            head is incomplete.
    """
    asked_otherwise = _option_for_another_draft(cfg)
    if asked_otherwise:
        return _use_eagle(cfg, asked_otherwise)
    support = nextn_support(
        cfg.model_path,
        hf_config,
        revision=cfg.revision,
        check_weights=cfg.load_format != "dummy",
    )
    if support.error is not None:
        raise LaunchError(f"--speculative-algorithm NEXTN: {support.error}")
    num_layers = _num_layers(support, hf_config)
    if num_layers > 1:
        return _use_eagle(
            cfg,
            f"the head has {num_layers} MTP layers, and the native worker drives one "
            "so far; EAGLE repeats the first",
        )
    if support.native:
        return "NEXTN"
    if support.draft_architecture is None or support.has_head is False:
        raise _no_head_error(cfg, support)
    return _use_eagle(cfg, support.reason)


def _num_layers(support: NextnSupport, hf_config: Any) -> int:
    """MTP layers of the head, by its weights if they are here, else by the config."""
    if support.plan is not None:
        return support.plan.num_layers
    return get_field(get_text_config(hf_config), "mtp_num_hidden_layers") or 0


def _option_for_another_draft(cfg: Any) -> str | None:
    """Say which option asks for a draft that is not the target's own head, if any."""
    draft_path = cfg.speculative_draft_model_path
    if draft_path not in (None, cfg.model_path):
        return (
            f"--speculative-draft-model-path names another checkpoint ({draft_path}), "
            "and NEXTN drafts with the head of the target's own."
        )
    load_format = cfg.speculative_draft_load_format or cfg.load_format
    if load_format not in NATIVE_LOAD_FORMATS:
        return (
            f"The load format {load_format} is not one that the native worker reads "
            f"({', '.join(NATIVE_LOAD_FORMATS)})."
        )
    if cfg.speculative_draft_load_format not in (None, cfg.load_format):
        return (
            f"--speculative-draft-load-format {cfg.speculative_draft_load_format} is "
            "not the target's, and the native worker reads the target's files."
        )
    if cfg._speculative_draft_quantization_explicitly_set:
        return (
            "--speculative-draft-model-quantization asks for another quantization, and "
            "the native worker serves the head as it is stored."
        )
    if cfg.weight_cache_mode != "off":
        return "--weight-cache-mode takes the weights from another process."
    if cfg.startup_weight_load_mode != "serial":
        return (
            "--startup-weight-load-mode overlap fills weights after graph capture, and "
            "the native worker shares tables that are filled."
        )
    return None


def _use_eagle(cfg: Any, reason: str) -> str:
    """Let the remap report say why NEXTN became EAGLE."""
    give_reason(record_of(cfg), RULE, "speculative_algorithm", reason)
    return "EAGLE"


def _no_head_error(cfg: Any, support: NextnSupport) -> LaunchError:
    return LaunchError(
        "--speculative-algorithm NEXTN needs a model with an MTP head: "
        f"{support.reason} Use a checkpoint of {cfg.model_path} that ships one, name "
        "a draft with --speculative-algorithm EAGLE --speculative-draft-model-path, "
        "or leave --speculative-algorithm out."
    )
