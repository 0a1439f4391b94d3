"""Formats patched files the way upstream's own pre-commit hook does."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ruff import find_ruff_bin

_SORTED_IMPORTS = (
    *("--select", "I001"),
    # Nothing in the folder that this runs in is first-party.
    *("--config", "src = []"),
    *("--config", 'lint.isort.known-first-party = ["sglang"]'),
)


def format_files(texts: Mapping[str, str]) -> dict[str, str]:
    """Return Python sources by name, formatted, their imports sorted, as upstream's.

    Upstream's files are in that format, so only lines that an edit touched change.
    """
    with tempfile.TemporaryDirectory(prefix="sglang-fork-") as scratch:
        paths = {name: Path(scratch) / name for name in texts}
        for name, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[name])
        common = ("--isolated", "--no-cache", "--quiet", scratch)
        for command in (("check", "--fix", *_SORTED_IMPORTS), ("format",)):
            subprocess.run([find_ruff_bin(), *command, *common], check=True)
        return {name: path.read_text() for name, path in paths.items()}
