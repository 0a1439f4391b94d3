"""Formats patched files the way upstream's own pre-commit hook does."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ruff import find_ruff_bin


def format_files(texts: Mapping[str, str]) -> dict[str, str]:
    """Return Python sources by name, as ``ruff format`` with its defaults writes them.

    Upstream's files are in that format, so only lines that an edit touched change.
    """
    with tempfile.TemporaryDirectory(prefix="sglang-fork-") as scratch:
        paths = {name: Path(scratch) / name for name in texts}
        for name, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[name])
        subprocess.run(
            [find_ruff_bin(), "format", "--isolated", "--no-cache", "--quiet", scratch],
            check=True,
        )
        return {name: path.read_text() for name, path in paths.items()}
