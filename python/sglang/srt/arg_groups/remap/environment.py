"""Environment variables that the user set and resolution overwrote."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sglang.srt.arg_groups.remap.reasons import reason_for
from sglang.srt.arg_groups.remap.record import Remap, Request, Source

_SPELLINGS = {"true": "1", "yes": "1", "false": "0", "no": "0"}


# What rules wrote in this process: a second engine finds it and nobody asked for it.
_written: dict[str, str | None] = {}
# New at every launch by design.
_PER_LAUNCH = ("SGLANG_RUN_ID",)


@contextmanager
def watch_environment(server_args: Any, rule: str) -> Iterator[None]:
    """Note which variables, set by the user, have another value after the rule."""
    before = dict(os.environ)
    yield
    after = dict(os.environ)
    if after == before:
        return
    if not hasattr(server_args, "_environment_changes"):
        server_args._environment_changes = {}
    changes = server_args._environment_changes
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        if new == old:
            continue
        if name in changes:
            changes[name] = (changes[name][0], rule)
        elif is_from_user(name, old):
            changes[name] = (old, rule)
        _written[name] = new


def is_from_user(name: str, value: str | None) -> bool:
    """Whether a variable's value is one that no rule of this process wrote."""
    if value is None or name in _PER_LAUNCH:
        return False
    return name not in _written or _written[name] != value


def variable_remap(
    server_args: Any, name: str, asked: str, effective: str | None, rule: str
) -> Remap | None:
    """A remap of a variable; None if both values mean the same."""
    if _meaning(effective) == _meaning(asked):
        return None
    reason = reason_for(server_args, rule, name, effective)
    return Remap(
        setting=name,
        asked=asked,
        effective=effective,
        rule=rule,
        reason=reason.why if reason else None,
        advice=reason.keep if reason else None,
        request=Request(Source.ENVIRONMENT, name),
    )


def environment_remaps(server_args: Any) -> Iterator[Remap]:
    """Yield the variables whose value is not the one that the user gave."""
    changes = getattr(server_args, "_environment_changes", {})
    for name, (asked, rule) in changes.items():
        remap = variable_remap(server_args, name, asked, os.environ.get(name), rule)
        if remap is not None:
            yield remap


def _meaning(value: str | None) -> str | None:
    if value is None:
        return None
    lowered = value.strip().lower()
    return _SPELLINGS.get(lowered, lowered)
