"""The report is readable: 100 columns on a terminal, one plain line in a file."""

from __future__ import annotations

import io
from typing import Any

import pytest

from sglang.srt.arg_groups.remap.record import Remap, Request, Source
from sglang.srt.arg_groups.remap.render import (
    defaults_table,
    on_terminal,
    remap_line,
    wants_colour,
)

REMAP = Remap(
    setting="page_size",
    asked=16,
    effective=64,
    rule="_mla_backend_page_constraints",
    reason="the attention backend takes only certain page sizes",
    advice="choose another --attention-backend",
    request=Request(Source.COMMAND_LINE, "--page-size"),
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colour_and_100_columns() -> None:
    text = on_terminal(remap_line(REMAP))
    assert text.startswith("\033[33m--page-size") and text.endswith("\033[0m")
    first, *rest = text.removeprefix("\033[33m").removesuffix("\033[0m").splitlines()
    assert len("[2026-01-01 00:00:00] " + first) <= 100
    assert rest and all(len(line) <= 100 for line in rest)
    assert " ".join([first, *map(str.strip, rest)]) == remap_line(REMAP)


def test_only_a_terminal_gets_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())
    assert not wants_colour(None)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())


@pytest.mark.parametrize(
    ("source", "value", "written"),
    [
        (Source.COMMAND_LINE, 64, "--name 64"),
        (Source.COMMAND_LINE, [1, 2], "--name 1 2"),
        (Source.COMMAND_LINE, {"a": 1}, "--name '{\"a\": 1}'"),
        (Source.COMMAND_LINE, True, "--name"),
        (Source.COMMAND_LINE, False, None),
        (Source.CONFIG_FILE, True, "--name: true"),
        (Source.KEYWORD, "x", "--name='x'"),
        (Source.ENVIRONMENT, "0", "--name=0"),
        (Source.KEYWORD, None, None),
    ],
)
def test_a_value_is_written_as_its_source_takes_it(
    source: Source, value: Any, written: str | None
) -> None:
    assert Request(source, "--name").with_value(value) == written


def test_a_rule_without_a_known_reason_is_named_and_nothing_is_invented() -> None:
    remap = Remap("x", 1, 2, "some_rule", None, None, REMAP.request)
    assert remap_line(remap) == (
        "--page-size: asked 1, using 2, by some_rule. "
        "To silence this line: --page-size 2."
    )


def test_a_long_table_stays_within_100_columns() -> None:
    settings = {f"setting_{number}": (None, "v" * number) for number in range(60)}
    table = defaults_table({"rule": settings})
    assert max(map(len, table.splitlines())) <= 100
    assert all(f"{name}=" in table for name in settings)
