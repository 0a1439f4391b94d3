"""The report as text: one line for each remap, one table of changed defaults."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from sglang.srt.arg_groups.remap.record import Remap, plain

WIDTH = 100
# What the log's format puts before a message, as in "[2026-01-01 00:00:00] ".
_PREFIX = len("[YYYY-MM-DD hh:mm:ss] ")
_YELLOW, _RESET = "\033[33m", "\033[0m"
_LONGEST_VALUE = 40


def remap_line(remap: Remap) -> str:
    """Setting, asked, effective, rule, reason and what to type, in one line."""
    return f"{_facts(remap)} {_advice(remap)}".rstrip()


def _facts(remap: Remap) -> str:
    asked, effective = plain(remap.asked), plain(remap.effective)
    why = f": {remap.reason}" if remap.reason else ""
    return f"{remap.request}: asked {asked}, using {effective}, by {remap.rule}{why}."


def _advice(remap: Remap) -> str:
    if not remap.can_be_typed:
        return f"To mend it, {remap.advice}." if remap.advice else ""
    keep = f"To get {_short(remap.asked)}, {remap.advice}. " if remap.advice else ""
    accept = remap.request.with_value(remap.effective)
    silence = accept if accept is not None else f"leave out {remap.request.name}"
    return f"{keep}To silence this line: {silence}."


def on_terminal(line: str) -> str:
    """The line folded at 100 columns, in yellow."""
    # The first line of a record shares its row with the log's prefix.
    folded = textwrap.wrap(
        line,
        WIDTH,
        initial_indent=" " * _PREFIX,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    text = "\n".join(folded).lstrip()
    return f"{_YELLOW}{text}{_RESET}"


def wants_colour(stream: TextIO | None) -> bool:
    """Whether the log goes to a terminal that shows colours."""
    return (
        stream is not None
        and not stream.closed
        and stream.isatty()
        and "NO_COLOR" not in os.environ
    )


def defaults_table(changed: Mapping[str, Mapping[str, tuple[Any, Any]]]) -> str:
    """One table, a row for each rule, of the untouched settings that it decided.

    Args:
        changed: ``{rule: {setting: (default, effective)}}``.
    """
    return "\n".join(_table_lines(changed))


def _table_lines(
    changed: Mapping[str, Mapping[str, tuple[Any, Any]]],
) -> Iterator[str]:
    yield "Settings left to SGLang, by the rule that decided them:"
    for rule, settings in changed.items():
        cells = [
            f"{setting}={_short(effective)}{_was(default)}"
            for setting, (default, effective) in settings.items()
        ]
        line = f"  {rule}:"
        for cell in cells:
            if len(line) + len(cell) + 2 > WIDTH and line.strip():
                yield line
                line = "     "
            line += f"  {cell}" if line.strip() else f" {cell}"
        yield line


def _was(default: Any) -> str:
    return "" if default in (None, "auto", False, []) else f" (was {_short(default)})"


def _short(value: Any) -> str:
    text = plain(value)
    if len(text) <= _LONGEST_VALUE:
        return text
    return text[: _LONGEST_VALUE - 1] + "…"
