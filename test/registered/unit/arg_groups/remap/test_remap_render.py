"""The report is readable: 100 columns on a terminal, one plain line in a file."""

import io
import os
import unittest
from unittest.mock import patch

from sglang.srt.arg_groups.remap.record import Remap, Request, Source
from sglang.srt.arg_groups.remap.render import (
    defaults_table,
    on_terminal,
    remap_line,
    wants_colour,
)
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

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
    def isatty(self):
        return True


class TestRemapRender(CustomTestCase):
    def test_a_terminal_gets_colour_and_100_columns(self):
        text = on_terminal(remap_line(REMAP))
        self.assertTrue(text.startswith("\033[33m--page-size"))
        self.assertTrue(text.endswith("\033[0m"))
        plain = text.removeprefix("\033[33m").removesuffix("\033[0m")
        first, *rest = plain.splitlines()
        self.assertLessEqual(len("[2026-01-01 00:00:00] " + first), 100)
        self.assertTrue(rest)
        self.assertTrue(all(len(line) <= 100 for line in rest))
        self.assertEqual(" ".join([first, *map(str.strip, rest)]), remap_line(REMAP))

    def test_only_a_terminal_gets_colour(self):
        without = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
        with patch.dict(os.environ, without, clear=True):
            self.assertTrue(wants_colour(Terminal()))
            self.assertFalse(wants_colour(io.StringIO()))
            self.assertFalse(wants_colour(None))
        with patch.dict(os.environ, NO_COLOR="1"):
            self.assertFalse(wants_colour(Terminal()))

    def test_a_value_is_written_as_its_source_takes_it(self):
        for source, value, written in (
            (Source.COMMAND_LINE, 64, "--name 64"),
            (Source.COMMAND_LINE, [1, 2], "--name 1 2"),
            (Source.COMMAND_LINE, {"a": 1}, "--name '{\"a\": 1}'"),
            (Source.COMMAND_LINE, True, "--name"),
            (Source.COMMAND_LINE, False, None),
            (Source.CONFIG_FILE, True, "--name: true"),
            (Source.KEYWORD, "x", "--name='x'"),
            (Source.ENVIRONMENT, "0", "--name=0"),
            (Source.KEYWORD, None, None),
        ):
            with self.subTest(source=source, value=value):
                self.assertEqual(Request(source, "--name").with_value(value), written)

    def test_a_rule_without_a_known_reason_is_named_and_nothing_is_invented(self):
        remap = Remap("x", 1, 2, "some_rule", None, None, REMAP.request)
        self.assertEqual(
            remap_line(remap),
            "--page-size: asked 1, using 2, by some_rule. "
            "To silence this line: --page-size 2.",
        )

    def test_a_long_table_stays_within_100_columns(self):
        settings = {f"setting_{n}": (None, "v" * n) for n in range(60)}
        table = defaults_table({"rule": settings})
        self.assertLessEqual(max(map(len, table.splitlines())), 100)
        self.assertTrue(all(f"{name}=" in table for name in settings))


if __name__ == "__main__":
    unittest.main()
