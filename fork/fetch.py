"""Gets the pinned upstream wheel, from a local file or from pip's index."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from packaging.version import Version

from fork.errors import BuildError
from fork.pin import Pin, PinnedWheel

LOCAL_WHEEL_VARIABLE = "SGLANG_UPSTREAM_WHEEL"


def fetch_wheel(pin: Pin, wheel: PinnedWheel, directory: Path) -> Path:
    """Return the path of the upstream wheel, its hash checked.

    ``SGLANG_UPSTREAM_WHEEL`` may name the wheel, or a folder that holds it, so
    that a build needs no index. Otherwise pip downloads it into ``directory``.

    Raises:
        BuildError: the wheel is not to be had, or its hash is not the pinned one.
    """
    local = os.environ.get(LOCAL_WHEEL_VARIABLE)
    path = (
        _find_local(Path(local), wheel) if local else _download(pin, wheel, directory)
    )
    _check_hash(path, wheel)
    return path


def _find_local(local: Path, wheel: PinnedWheel) -> Path:
    path = local / wheel.filename if local.is_dir() else local
    if not path.is_file():
        raise BuildError(
            f"{LOCAL_WHEEL_VARIABLE}={local}: there is no file {path}. "
            f"Expected {wheel.filename}, or a folder that holds it."
        )
    if path.name != wheel.filename:
        raise BuildError(
            f"{LOCAL_WHEEL_VARIABLE}={local}: this build needs {wheel.filename}."
        )
    return path


def fetch_release(name: str, version: str, directory: Path) -> Path:
    """Download any release's wheel for this interpreter, to read it; no hash is pinned.

    Raises:
        BuildError: the index does not have it.
    """
    reason = _pip_download(directory, f"{name}=={version}")
    found = list(directory.glob(f"{name}-{version}-*.whl"))
    if reason or len(found) != 1:
        raise BuildError(
            f"Could not get a wheel of {name} {version} for this Python from pip's "
            f"package index ({reason or 'pip said nothing'}). "
            f"`pip index versions {name}` lists the releases that it has."
        )
    return found[0]


def list_releases(name: str) -> list[Version]:
    """Return the releases of a project on pip's index, oldest first.

    Raises:
        BuildError: pip has no answer.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", name]
    command += ["--disable-pip-version-check"]
    result = _run(command)
    listed = re.search(r"^Available versions: (.+)$", result.stdout, re.MULTILINE)
    if listed is None:
        raise BuildError(f"pip lists no release of {name} ({_reason(result)}).")
    return sorted(map(Version, listed[1].split(", ")))


def _download(pin: Pin, wheel: PinnedWheel, directory: Path) -> Path:
    reason = _pip_download(
        directory,
        *("--implementation", "cp", "--python-version", wheel.python_version),
        *("--platform", wheel.platform, f"{pin.name}=={pin.version}"),
    )
    path = directory / wheel.filename
    if reason or not path.is_file():
        reason = reason or "pip said nothing"
        raise BuildError(
            f"Could not get {wheel.filename} from pip's package index ({reason}). "
            f"Check the index that pip is configured with, or download the wheel "
            f"elsewhere and set {LOCAL_WHEEL_VARIABLE} to its path."
        )
    return path


def _pip_download(directory: Path, *arguments: str) -> str:
    """Download wheels into a folder; return why not, or an empty string."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:"]
    result = _run([*command, "--dest", str(directory), *arguments])
    return _reason(result) if result.returncode else ""


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def _reason(result: subprocess.CompletedProcess[str]) -> str:
    return (result.stderr.strip().splitlines() or ["pip said nothing"])[-1]


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_hash(path: Path, wheel: PinnedWheel) -> None:
    found = sha256_of(path)
    if found != wheel.sha256:
        raise BuildError(
            f"{path}: the sha256 is not the pinned one.\n"
            f"  expected {wheel.sha256}\n  found    {found}\n"
            "The file is damaged or is not the release that this fork patches."
        )
