"""Builds: the same bytes from the same inputs, and a clear stop from bad ones."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fork.fetch import LOCAL_WHEEL_VARIABLE
from fork.pin import REPOSITORY, read_pin

INPUTS = (
    "fork",
    "patches",
    "python",
    "sgl-kernel",
    "setup.py",
    "pyproject.toml",
    "UPSTREAM.toml",
    "LICENSE",
    "NOTICE",
)
NAME = read_pin().wheel_for_this_interpreter().filename

MOVED_ANCHOR = """
from patches.engine.edits import ReplaceBody
from patches.engine.patch import Patch

PATCH = Patch(
    number=1,
    title="[Fix] A place that upstream has moved",
    message="For a test.",
    edits=[
        ReplaceBody(
            file="srt/server_args.py", function="moved_away", code="return None"
        )
    ],
)
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The inputs of a build in another folder, as if cloned at another time."""
    folder = tmp_path / "elsewhere" / "clone"
    folder.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in INPUTS:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(
                source, folder / name, ignore=ignored, copy_function=shutil.copyfile
            )
        else:
            shutil.copyfile(source, folder / name)
    return folder


def build(
    clone: Path, out: Path, umask: int = 0o022, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the build in ``clone`` with only these variables of pip and of our own."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PIP_") and name != LOCAL_WHEEL_VARIABLE
    }
    return subprocess.run(
        [sys.executable, "-m", "fork", "wheel", str(out)],
        cwd=clone,
        env={**inherited, "TMPDIR": str(scratch(clone)), **environment},
        umask=umask,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def scratch(clone: Path) -> Path:
    """The folder for the build's temporary files, to see what it leaves."""
    folder = clone.parent / "scratch"
    folder.mkdir(exist_ok=True)
    return folder


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def assert_stops(
    result: subprocess.CompletedProcess[str], clone: Path, out: Path, *words: str
) -> None:
    """The build said why in one message, and left nothing behind."""
    assert result.returncode == 1, result.stdout + result.stderr
    assert result.stderr.startswith("error: "), result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr
    assert not files(out)
    assert not files(scratch(clone))


def test_two_builds_elsewhere_and_at_another_time_are_the_same_bytes(
    fork_wheel: Path, upstream_wheel: Path, clone: Path, tmp_path: Path
) -> None:
    for path in clone.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    out = tmp_path / "out"
    result = build(clone, out, umask=0o077, SGLANG_UPSTREAM_WHEEL=str(upstream_wheel))
    assert result.returncode == 0, result.stderr
    (second,) = files(out)
    assert second.name == fork_wheel.name
    assert digest(second) == digest(fork_wheel)
    assert not files(scratch(clone))


def test_a_wrong_hash_stops_the_build(clone: Path, tmp_path: Path) -> None:
    damaged = tmp_path / NAME
    damaged.write_bytes(b"not the wheel")
    out = tmp_path / "out"
    result = build(clone, out, SGLANG_UPSTREAM_WHEEL=str(damaged))
    found = hashlib.sha256(b"not the wheel").hexdigest()
    expected = read_pin().wheel_for_this_interpreter().sha256
    assert_stops(result, clone, out, str(damaged), "sha256", expected, found)


def test_a_moved_anchor_stops_the_build(
    clone: Path, upstream_wheel: Path, tmp_path: Path
) -> None:
    (clone / "patches" / "series" / "p001_moved.py").write_text(MOVED_ANCHOR)
    out = tmp_path / "out"
    result = build(clone, out, SGLANG_UPSTREAM_WHEEL=str(upstream_wheel))
    place = ("patch 1 ", "sglang/srt/server_args.py", "moved_away", read_pin().version)
    assert_stops(result, clone, out, *place)


def test_a_closed_index_stops_the_build(clone: Path, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: refuses connections
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
        out = tmp_path / "out"
        result = build(
            clone, out, PIP_INDEX_URL=url, PIP_RETRIES="0", PIP_CONFIG_FILE=os.devnull
        )
    assert_stops(result, clone, out, NAME, "index", LOCAL_WHEEL_VARIABLE)


def test_no_index_stops_the_build(clone: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = build(clone, out, PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
    assert_stops(result, clone, out, NAME, "index", LOCAL_WHEEL_VARIABLE)


@pytest.mark.parametrize("local", ["absent.whl", "."])
def test_a_local_wheel_that_is_not_there_stops_the_build(
    clone: Path, tmp_path: Path, local: str
) -> None:
    named = tmp_path / local
    out = tmp_path / "out"
    result = build(clone, out, SGLANG_UPSTREAM_WHEEL=str(named))
    assert_stops(result, clone, out, LOCAL_WHEEL_VARIABLE, str(named), NAME)


def test_a_local_wheel_of_another_name_stops_the_build(
    clone: Path, tmp_path: Path
) -> None:
    other = tmp_path / "sglang-0.5.22-py3-none-any.whl"
    other.touch()
    out = tmp_path / "out"
    result = build(clone, out, SGLANG_UPSTREAM_WHEEL=str(other))
    assert_stops(result, clone, out, LOCAL_WHEEL_VARIABLE, str(other), NAME)


def test_pip_shows_the_reason_when_a_build_stops(clone: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", "import setup; setup.build_wheel('out')"],
        cwd=clone,
        env={**os.environ, LOCAL_WHEEL_VARIABLE: str(tmp_path / "absent.whl")},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: {LOCAL_WHEEL_VARIABLE}=")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
