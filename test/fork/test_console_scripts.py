"""The commands that the wheel installs."""

from __future__ import annotations

import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from zipfile import ZipFile

import pytest


def console_scripts(wheel: Path) -> dict[str, str]:
    with ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("/entry_points.txt")]
        parser = ConfigParser(delimiters=("=",))
        parser.read_string(archive.read(name).decode())
    return dict(parser["console_scripts"])


def test_ours_join_upstreams(fork_wheel: Path, upstream_wheel: Path) -> None:
    ours = {"sglang-nextn-inspect": "sglang_nextn_inspect:main"}
    assert console_scripts(fork_wheel) == console_scripts(upstream_wheel) | ours


def test_inspect_answers_without_importing_pytorch(dense_model: str) -> None:
    result = inspect(dense_model, "print('torch' in sys.modules)")
    assert result.returncode == 0, result.stderr
    assert "yes, natively" in result.stdout
    assert result.stdout.endswith("False\n")


@pytest.mark.parametrize("content", ["not a checkpoint", ""])
def test_inspect_says_broken_by_its_exit_status(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    assert inspect(str(tmp_path)).returncode == 2


def inspect(model: str, then: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command as the console script does, and a statement after it."""
    code = (
        "import sys; from sglang_nextn_inspect import main; "
        f"status = main(); {then or 'pass'}; sys.exit(status)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, model],
        capture_output=True,
        text=True,
        check=False,
    )
