"""Editable installs: our files are used in place, upstream's are patched copies."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from fork.pin import REPOSITORY, read_pin


def test_the_environment_runs_the_fork() -> None:
    assert importlib.metadata.version("sglang") == read_pin().fork_version


def test_an_edit_of_our_files_needs_no_rebuild() -> None:
    spec = importlib.util.find_spec("sglang")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    for name in ("worker.py", "algorithm.py"):
        ours = REPOSITORY / "python/sglang/srt/speculative/nextn" / name
        if ours.exists():
            assert (package / "srt/speculative/nextn" / name).samefile(ours)
