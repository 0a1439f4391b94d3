"""Packs the fork wheel, byte for byte the same from the same inputs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from wheel.wheelfile import WheelFile

from fork.fetch import fetch_wheel
from fork.pin import Pin, PinnedWheel
from fork.tree import assemble

# A ZIP archive cannot hold an earlier time than 1980-01-01.
FIXED_TIME = "315532800"


def build_fork_wheel(pin: Pin, wheel: PinnedWheel, directory: Path) -> Path:
    """Build the fork wheel of one upstream wheel into ``directory``.

    Returns the path of the wheel. Nothing is left in ``directory`` if it fails.

    Raises:
        BuildError: the upstream wheel is not to be had, or a patch does not fit it.
    """
    with tempfile.TemporaryDirectory(prefix="sglang-fork-") as scratch:
        upstream = fetch_wheel(pin, wheel, Path(scratch))
        tree = Path(scratch) / "tree"
        tree.mkdir()
        assemble(pin, upstream, tree)
        return pack(tree, directory / pin.fork_filename(wheel))


def pack(tree: Path, path: Path) -> Path:
    """Pack an unpacked wheel; RECORD is written anew.

    File modes and times are fixed, so that neither the clock nor the umask shows.
    """
    (next(tree.glob("*.dist-info")) / "RECORD").unlink(missing_ok=True)
    for file in tree.rglob("*"):
        file.chmod(0o755 if file.is_dir() or file.suffix == ".so" else 0o644)
    previous = os.environ.get("SOURCE_DATE_EPOCH")
    os.environ["SOURCE_DATE_EPOCH"] = previous or FIXED_TIME
    try:
        with WheelFile(path, "w") as archive:
            archive.write_files(str(tree))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        if previous is None:
            del os.environ["SOURCE_DATE_EPOCH"]
    return path
