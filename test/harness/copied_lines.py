"""Finds runs of identical lines between our files and upstream's.

A line is compared without its indentation and with single spaces. Trivial lines are
left out before runs are formed, so that a copy cannot hide behind them: lines without
letter or digit, lone keywords, imports, and a lone name in a parameter or argument list
with its type, since whoever implements an interface repeats its names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

RUN_LENGTH = 6
SOURCE_SUFFIXES = {
    *(".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"),
    *(".py", ".pyi", ".pyx", ".rs", ".js", ".proto", ".jinja", ".sh"),
    *(".md", ".txt", ".toml", ".yaml", ".yml"),
}

_LONE_KEYWORDS = {
    *("break", "continue", "pass", "return", "return None"),
    *("else", "else:", "try:", "finally:"),
    *("@classmethod", "@property", "@staticmethod"),
}
_IMPORT = re.compile(r"(?:import|from)\s+[\w.]+(?:\s+(?:import|as)\b.*|\s*,.*)?$")
_PARAMETER = re.compile(r"\*{0,2}[\w.]+(?:: ?[\w.\[\], |\"]+)?(?: ?= ?[\w.]+)?,$")

Line = tuple[int, str]
Window = tuple[str, ...]


@dataclass(frozen=True, order=True)
class CopiedRun:
    """Six lines of ours that stand in an upstream file; numbers count from 1."""

    ours: str
    line: int
    upstream: str
    upstream_line: int

    def __str__(self) -> str:
        return f"{self.ours}:{self.line} is {self.upstream}:{self.upstream_line}"


def significant_lines(text: str) -> list[Line]:
    """Return the lines that are not trivial, normalised, with their numbers."""
    lines: list[Line] = []
    in_import = False
    for number, raw in enumerate(text.splitlines(), start=1):
        line = " ".join(raw.split())
        if in_import:
            in_import = ")" not in line
        elif _IMPORT.match(line):
            in_import = "(" in line and ")" not in line
        elif not _is_trivial(line):
            lines.append((number, line))
    return lines


def _is_trivial(line: str) -> bool:
    return (
        line in _LONE_KEYWORDS
        or not any(map(str.isalnum, line))
        or _PARAMETER.match(line) is not None
    )


def windows(lines: list[Line]) -> Iterator[tuple[int, Window]]:
    """Yield every run of ``RUN_LENGTH`` lines with the number of its first line."""
    for start in range(len(lines) - RUN_LENGTH + 1):
        run = lines[start : start + RUN_LENGTH]
        yield run[0][0], tuple(text for _, text in run)


class CopyDetector:
    """Knows our files, and finds their runs in any other file.

    Args:
        ours: name and text of each of our files.
    """

    def __init__(self, ours: Iterable[tuple[str, str]]):
        self._places: dict[Window, list[tuple[str, int]]] = defaultdict(list)
        for name, text in ours:
            for number, window in windows(significant_lines(text)):
                self._places[window].append((name, number))
        self._first_lines = {window[0] for window in self._places}

    def runs_in(self, upstream: str, text: str) -> Iterator[CopiedRun]:
        """Yield each run of ours that stands in the file ``upstream``."""
        lines = significant_lines(text)
        for start in range(len(lines) - RUN_LENGTH + 1):
            number, first = lines[start]
            if first in self._first_lines:
                window = tuple(line for _, line in lines[start : start + RUN_LENGTH])
                for name, ours in self._places.get(window, ()):
                    yield CopiedRun(name, ours, upstream, number)


def source_files(wheel: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of every source file in a wheel."""
    with ZipFile(wheel) as archive:
        for name in archive.namelist():
            if Path(name).suffix in SOURCE_SUFFIXES:
                yield name, archive.read(name).decode("utf-8", errors="replace")
