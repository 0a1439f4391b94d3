"""The tables of docs/ say what the code does, and its links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [*sorted((REPOSITORY / "docs").glob("*.md")), REPOSITORY / "CONTRIBUTING.md"]
PAGES.append(REPOSITORY / "README.md")


def test_the_page_is_what_the_script_writes() -> None:
    script = REPOSITORY / "docs" / "tables.py"
    spec = importlib.util.spec_from_file_location("docs_tables", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run python docs/tables.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"\]\(([^)#:]+)\)", text))
    missing = {name for name in named if not (page.parent / name).exists()}
    quoted = set(re.findall(r"`([\w.-]+/[\w./-]+)`", text))
    roots = (REPOSITORY, REPOSITORY / "python" / "sglang" / "srt", REPOSITORY / "build")
    for name in quoted:
        known = any((root / name).exists() for root in roots)
        if name.split("/")[0] in _FOLDERS and not known:
            missing.add(name)
    assert not missing


# What a path in a page starts with when it is one of ours.
_FOLDERS = {
    *(path.name for path in REPOSITORY.iterdir() if path.is_dir()),
    "speculative",
    "arg_groups",
}
