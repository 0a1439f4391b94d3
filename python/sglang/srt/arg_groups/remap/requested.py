"""What the user set, and where: asking for the default is asking too."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from sglang.srt.arg_groups.arg_utils import _field_default, field_names, record_fields
from sglang.srt.arg_groups.remap.record import Request, Source

# Rules that read a setting from an environment variable.
ENVIRONMENT_SETTINGS = {
    (
        "_handle_prefill_delayer_env_compat",
        "enable_prefill_delayer",
    ): "SGLANG_SCHEDULER_DECREASE_PREFILL_IDLE",
    (
        "_handle_prefill_delayer_env_compat",
        "prefill_delayer_max_delay_passes",
    ): "SGLANG_PREFILL_DELAYER_MAX_DELAY_PASSES",
    (
        "_handle_prefill_delayer_env_compat",
        "prefill_delayer_token_usage_low_watermark",
    ): "SGLANG_PREFILL_DELAYER_TOKEN_USAGE_LOW_WATERMARK",
}


def record_command_line(
    server_args: Any, parser: argparse.ArgumentParser, argv: Sequence[str]
) -> None:
    """Remember which fields a command line and its config file set.

    Args:
        argv: the words of the command line, before a config file was merged into it.
    """
    requests: dict[str, Request] = {}
    config_file = _config_file(argv)
    for key in _keys_of(config_file):
        action = _action_of(parser, "--" + key)
        if action is not None:
            requests[action.dest] = Request(Source.CONFIG_FILE, key, config_file)
    for word in argv:
        option = word.partition("=")[0]
        action = _action_of(parser, option) if option.startswith("--") else None
        if action is not None:
            requests[action.dest] = Request(Source.COMMAND_LINE, option)
    known = field_names(type(server_args))
    server_args._requests = {
        field: request for field, request in requests.items() if field in known
    }


def record_keywords(server_args: Any, keywords: Iterable[str]) -> None:
    """Remember which fields the keywords of a call set."""
    known = field_names(type(server_args))
    server_args._requests = {
        name: Request(Source.KEYWORD, name) for name in keywords if name in known
    }


def requests_of(server_args: Any) -> dict[str, Request]:
    """Return what the user set, by field.

    Of a record that was built without a command line or ``Engine``, those are the
    fields that differ from their defaults.
    """
    recorded = getattr(server_args, "_requests", None)
    if recorded is not None:
        return recorded
    return {
        field.name: Request(Source.KEYWORD, field.name)
        for field in record_fields(type(server_args))
        if not field.name.startswith("_")
        and getattr(server_args, field.name) != _field_default(field)
    }


def _config_file(argv: Sequence[str]) -> str | None:
    return argv[argv.index("--config") + 1] if "--config" in argv else None


def _keys_of(config_file: str | None) -> Iterable[str]:
    """The keys of a config file, those of flags that it leaves off too."""
    if config_file is None:
        return ()
    with open(config_file) as file:
        return yaml.safe_load(file) or ()


def _action_of(parser: argparse.ArgumentParser, option: str) -> argparse.Action | None:
    """The action that argparse takes for an option, abbreviated or not."""
    exact = parser._option_string_actions.get(option)
    if exact is not None or not parser.allow_abbrev:
        return exact
    matches = {
        id(action): action
        for name, action in parser._option_string_actions.items()
        if name.startswith(option)
    }
    return next(iter(matches.values())) if len(matches) == 1 else None
