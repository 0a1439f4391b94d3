"""The door for settings that are decided after resolution, where they are decided."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from sglang.srt.arg_groups.remap.collect import make_remap
from sglang.srt.arg_groups.remap.effective import is_same
from sglang.srt.arg_groups.remap.environment import is_from_user, variable_remap
from sglang.srt.arg_groups.remap.metrics import export_remaps
from sglang.srt.arg_groups.remap.record import Remap
from sglang.srt.arg_groups.remap.report import RemapError, log_remaps, policy_of
from sglang.srt.arg_groups.remap.requested import requests_of

# What the user asks of a running server, or what lasts for one step only.
NO_REMAPS = (
    "adaptive_spec.capture_override",
    "adaptive_spec.capture_restore",
    "adaptive_spec.restore",
    "elastic_ep.scale",
    "elastic_ep.scale_join",
    "model_runner.ensure_decode_cuda_graphs",
    "model_runner.update_model_fields",
    "role_switch.flip",
    "scheduler.attach_hicache",
    "scheduler.detach_hicache",
    "scheduler.weight_version",
    "update_server_args",
)


def report_late_remap(setting: str, *, effective: Any, rule: str) -> None:
    """Say, once, that a setting runs with another value than the user asked for.

    Does nothing where the user did not set it, where the value is the asked one or the
    one that resolution reported, and before the configuration is published.

    Args:
        setting: a field of ``ServerArgs``.
        effective: the value that runs.
        rule: the code that decided it.

    Raises:
        RemapError: the policy is ``error``.
    """
    server_args = _published()
    if server_args is not None:
        _report(server_args, setting, effective, rule)


def overwriter(variable: Any, rule: str) -> Callable[[Any], None]:
    """A setter of an environment variable that says so if the user had set it.

    Args:
        variable: a field of ``envs``.
        rule: the code that overwrites it.
    """

    def set_value(value: Any) -> None:
        asked = os.environ.get(variable.name)
        variable.set(value)
        server_args = _published()
        if server_args is None or asked is None:
            return
        if is_from_user(variable.name, asked):
            effective = os.environ.get(variable.name)
            remap = variable_remap(server_args, variable.name, asked, effective, rule)
            if remap is not None:
                _publish(server_args, remap)

    return set_value


def report_overrides(server_args: Any, source: str, fields: Mapping[str, Any]) -> None:
    """Report what ``RuntimeContext.override`` changed of the user's settings."""
    if source in NO_REMAPS:
        return
    for setting, effective in fields.items():
        _report(server_args, setting, effective, source)


def late_remaps(server_args: Any) -> list[dict[str, Any]]:
    """Return what this process reported after resolution, as data."""
    return [remap.to_dict() for remap in _reported(server_args).values()]


def all_remaps(
    server_args: Any, internal_states: list[Mapping[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Return every remap of the server once: resolution's, then the schedulers'.

    Args:
        internal_states: the answers of the schedulers, each with its ``remaps``.
    """
    remaps = [remap.to_dict() for remap in getattr(server_args, "_remaps", ())]
    remaps += late_remaps(server_args)
    for state in internal_states or ():
        remaps += state.get("remaps", ())
    unique: list[dict[str, Any]] = []
    for remap in remaps:
        if remap not in unique:
            unique.append(remap)
    return unique


def _report(server_args: Any, setting: str, effective: Any, rule: str) -> None:
    request = requests_of(server_args).get(setting)
    raw = getattr(server_args, "_raw_input", {})
    if request is None or setting not in raw:
        return
    reported_by_resolution = any(
        remap.setting == setting and remap.effective == effective
        for remap in server_args._remaps
    )
    if reported_by_resolution or is_same(setting, raw[setting], effective):
        return
    _publish(server_args, make_remap(server_args, setting, request, effective, rule))


def _publish(server_args: Any, remap: Remap) -> None:
    reported = _reported(server_args)
    key = remap.setting, str(remap.effective)
    if key in reported:
        return
    reported[key] = remap
    policy = policy_of(server_args)
    if policy == "error":
        raise RemapError([remap])
    if _is_first_rank():
        export_remaps(server_args, [remap])
        if policy == "warn":
            log_remaps(server_args, [remap])


def _published() -> Any:
    """The published server arguments; None before there are any."""
    from sglang.srt.runtime_context import get_context

    try:
        return get_context().server_args
    except ValueError:
        return None


def _reported(server_args: Any) -> dict[tuple[str, str], Remap]:
    if "_late_remaps" not in server_args.__dict__:
        server_args._late_remaps = {}
    return server_args._late_remaps


def _is_first_rank() -> bool:
    """Every rank decides alike; the first one speaks. No rank yet: one process."""
    import torch.distributed

    if not torch.distributed.is_initialized():
        return True
    return torch.distributed.get_rank() == 0
