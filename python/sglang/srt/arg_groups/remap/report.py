"""Concludes resolution: the remaps as data, as log lines, or as a refusal."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from sglang.srt.arg_groups.launch_error import LaunchError
from sglang.srt.arg_groups.overrides import resolution_result
from sglang.srt.arg_groups.remap.collect import changed_defaults, collect_remaps
from sglang.srt.arg_groups.remap.record import Remap, Source
from sglang.srt.arg_groups.remap.render import (
    defaults_table,
    on_terminal,
    remap_line,
    wants_colour,
)
from sglang.srt.arg_groups.remap.requested import requests_of

logger = logging.getLogger(__name__)


class RemapError(LaunchError):
    """``--remap-policy error``: what the user asked for is not what would run."""

    def __init__(self, remaps: Sequence[Remap]):
        self.remaps = tuple(remaps)
        count = len(self.remaps)
        plural = "setting" if count == 1 else "settings"
        lines = [f"--remap-policy error: {count} {plural} would not run as asked."]
        lines += [f"  {number}. {line}" for number, line in _numbered(self.remaps)]
        lines.append("Nothing was started. --remap-policy warn starts with these.")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[RemapError], tuple[tuple[Remap, ...]]]:
        return type(self), (self.remaps,)


def conclude_remaps(server_args: Any) -> None:
    """Keep the remaps of a finished resolution on the record.

    Raises:
        RemapError: there are some and the policy is ``error``.
    """
    server_args._remaps = collect_remaps(server_args)
    if server_args._remaps and policy_of(server_args) == "error":
        raise RemapError(server_args._remaps)


def log_remap_report(server_args: Any) -> None:
    """Log the report of a launch, once; what was declared after resolution counts.

    Raises:
        RemapError: the policy is ``error`` and there is a remap.
    """
    if getattr(server_args, "_remap_report_logged", False):
        return
    server_args._remap_report_logged = True
    conclude_remaps(server_args)
    if policy_of(server_args) == "silent":
        return
    log_remaps(server_args, server_args._remaps)
    changed = changed_defaults(server_args)
    if changed:
        logger.info(defaults_table(changed))


def log_remaps(server_args: Any, remaps: Iterable[Remap]) -> None:
    """One WARNING for each remap, folded and coloured on a terminal only."""
    _heed_engine_default_level(server_args)
    for remap in remaps:
        line = remap_line(remap)
        logger.warning(on_terminal(line) if _logs_to_terminal() else line)


def policy_of(server_args: Any) -> str:
    """``warn``, ``error`` or ``silent``."""
    return resolution_result(server_args, "remap_policy", "warn")


def _numbered(remaps: Sequence[Remap]) -> Iterable[tuple[int, str]]:
    return ((number, remap_line(remap)) for number, remap in enumerate(remaps, 1))


def _logs_to_terminal() -> bool:
    return any(
        wants_colour(getattr(handler, "stream", None))
        for handler in logging.getLogger().handlers
    )


def _heed_engine_default_level(server_args: Any) -> None:
    """``Engine`` logs errors only unless told otherwise; a remap is told all the same.

    A log level that the user chose is obeyed.
    """
    requests = requests_of(server_args)
    from_engine = any(request.source is Source.KEYWORD for request in requests.values())
    if from_engine and "log_level" not in requests:
        logger.setLevel(logging.WARNING)
