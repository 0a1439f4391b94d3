"""Compares what the user asked with what will run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from sglang.srt.arg_groups.arg_utils import record_fields, with_fallback
from sglang.srt.arg_groups.remap.draft_algorithm import draft_remaps
from sglang.srt.arg_groups.remap.effective import is_same
from sglang.srt.arg_groups.remap.environment import environment_remaps
from sglang.srt.arg_groups.remap.journal import trace
from sglang.srt.arg_groups.remap.reasons import reason_for
from sglang.srt.arg_groups.remap.record import Remap, Request, Source
from sglang.srt.arg_groups.remap.requested import ENVIRONMENT_SETTINGS, requests_of


def collect_remaps(server_args: Any) -> tuple[Remap, ...]:
    """Return every setting that the user set and that will run with another value."""
    found: dict[str, Remap] = {}
    for remap in (
        *draft_remaps(server_args),
        *_setting_remaps(server_args),
        *_environment_setting_remaps(server_args),
        *environment_remaps(server_args),
    ):
        found.setdefault(remap.setting, remap)
    return tuple(found.values())


def changed_defaults(server_args: Any) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Return the untouched settings that a rule decided, by rule.

    Returns:
        ``{rule: {setting: (default, effective)}}``.
    """
    requested = requests_of(server_args)
    changed: dict[str, dict[str, tuple[Any, Any]]] = {}
    overlay: dict[str, tuple[str, Any]] = {}
    for rule, declared in server_args._resolved_overrides:
        for setting, value in declared.items():
            old = overlay.get(setting, (None, server_args._raw_input[setting]))
            if value != old[1]:
                overlay[setting] = (rule, value)
    for setting, (rule, value) in overlay.items():
        default = server_args._raw_input[setting]
        if setting not in requested and not setting.startswith("_"):
            effective = with_fallback(type(server_args), setting, value)
            if effective != default:
                changed.setdefault(rule, {})[setting] = (default, effective)
    return changed


def make_remap(
    server_args: Any, setting: str, request: Request, effective: Any, rule: str
) -> Remap:
    """A remap of a field, with the reason that is known for the rule."""
    reason = reason_for(server_args, rule, setting, effective)
    return Remap(
        setting=setting,
        asked=server_args._raw_input[setting],
        effective=effective,
        rule=rule,
        reason=reason.why if reason else None,
        advice=reason.keep if reason else None,
        request=request,
    )


def _setting_remaps(server_args: Any) -> Iterator[Remap]:
    requests = requests_of(server_args)
    for field in record_fields(type(server_args)):
        request = requests.get(field.name)
        if request is None:
            continue
        effective, rule = trace(server_args, field.name)
        asked = server_args._raw_input[field.name]
        if rule is not None and not is_same(field.name, asked, effective):
            yield make_remap(server_args, field.name, request, effective, rule)


def _environment_setting_remaps(server_args: Any) -> Iterator[Remap]:
    """Settings that a variable asked for and a later rule changed."""
    for (rule, setting), variable in ENVIRONMENT_SETTINGS.items():
        if variable not in os.environ:
            continue
        asked = last = None
        deciding_rule = rule
        for source, declared in server_args._resolved_overrides:
            if setting not in declared:
                continue
            if source == rule:
                asked = declared[setting]
            elif declared[setting] != last:
                deciding_rule = source
            last = declared[setting]
        if asked is not None and last != asked:
            reason = reason_for(server_args, deciding_rule, setting, last)
            yield Remap(
                setting=setting,
                asked=asked,
                effective=last,
                rule=deciding_rule,
                reason=reason.why if reason else None,
                advice=reason.keep if reason else None,
                request=Request(Source.ENVIRONMENT, variable),
            )
