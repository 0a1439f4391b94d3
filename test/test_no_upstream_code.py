"""No line of SGLang is committed: not in the overlay, not in a patch, not in a test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.copied_lines import SOURCE_SUFFIXES, CopyDetector, source_files

REPOSITORY = Path(__file__).resolve().parent.parent

UPSTREAM = """
def rotate(values, by):
    # Rotate to the left.
    if not values:
        return values

    by %= len(values)
    head, tail = values[:by], values[by:]
    return tail + head
"""


def committed_files() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = REPOSITORY / name
        if path.suffix in SOURCE_SUFFIXES and path.is_file():
            yield name, path.read_text("utf-8")


def test_no_run_of_six_lines_is_upstreams(upstream_wheel: Path) -> None:
    ours = dict(committed_files())
    assert len(ours) > 50, "git lists too few files for this test to mean anything"
    detector = CopyDetector(ours.items())
    upstream = list(source_files(upstream_wheel))
    assert len(upstream) > 2000, f"{upstream_wheel} has too few source files"
    runs = [run for name, text in upstream for run in detector.runs_in(name, text)]
    assert not runs, "copied from upstream:\n" + "\n".join(map(str, sorted(runs)))


def test_copied_lines_are_found_whatever_their_indentation() -> None:
    planted = "class Ring:\n" + "".join(
        f"        {line}\n" if line else "\n" for line in UPSTREAM.splitlines()
    )
    found = list(CopyDetector([("ours.py", planted)]).runs_in("theirs.py", UPSTREAM))
    assert [(run.line, run.upstream_line) for run in found] == [(3, 2), (4, 3)]


@pytest.mark.parametrize("between", ["", "\n\n", "    else:\n", "    import os\n"])
def test_trivial_lines_between_do_not_hide_a_copy(between: str) -> None:
    planted = between.join(UPSTREAM.splitlines(keepends=True))
    assert list(CopyDetector([("ours.py", planted)]).runs_in("up.py", UPSTREAM))


def test_five_lines_are_not_a_copy() -> None:
    five = "\n".join(UPSTREAM.strip().splitlines()[:6])
    assert not list(CopyDetector([("ours.py", five)]).runs_in("up.py", UPSTREAM))


def test_a_changed_line_ends_a_run() -> None:
    planted = UPSTREAM.replace("by %= len(values)", "by = by % len(values)")
    assert not list(CopyDetector([("ours.py", planted)]).runs_in("up.py", UPSTREAM))


def test_imports_are_no_copy() -> None:
    names = "".join(f"    name_{i},\n" for i in range(9))
    text = f"from package.module import (\n{names})\n" + "import os\n" * 9
    assert not list(CopyDetector([("ours.py", text)]).runs_in("up.py", text))
