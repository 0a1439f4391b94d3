"""Editable installs: a patched tree under build/ whose own files are links to ours."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from fork.fetch import fetch_wheel
from fork.pin import PIN_FILE, REPOSITORY, Pin, PinnedWheel
from fork.tree import KERNELS, OVERLAY, assemble, dist_info, our_files
from fork.wheel import pack

TREES = REPOSITORY / "build" / "editable"
STAMP = "fork-inputs.sha256"


def build_editable_wheel(pin: Pin, wheel: PinnedWheel, directory: Path) -> Path:
    """Build a wheel that points at the tree under ``build/editable``.

    An edit of a file under ``python/`` or ``sgl-kernel/`` is used by the next run. A
    new file, or a change to a patch, needs ``refresh_tree``.
    """
    tree = refresh_tree(pin, wheel)
    with tempfile.TemporaryDirectory(prefix="sglang-fork-") as scratch:
        content = Path(scratch)
        info = dist_info(tree)
        shutil.copytree(info, content / info.name)
        (content / "sglang_fork.pth").write_text(f"{tree}\n")
        return pack(content, directory / pin.fork_filename(wheel))


def refresh_tree(pin: Pin, wheel: PinnedWheel) -> Path:
    """Bring the tree up to date with the patches and our list of files.

    Nothing is done when its inputs are unchanged. The old tree stays when a patch does
    not fit.
    """
    tree = TREES / f"{pin.version}-py{wheel.python_version}"
    stamp = tree / STAMP
    inputs = fingerprint(wheel)
    if stamp.is_file() and stamp.read_text() == inputs:
        return tree
    TREES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=TREES) as scratch:
        upstream = fetch_wheel(pin, wheel, Path(scratch))
        new = Path(scratch) / "tree"
        new.mkdir()
        assemble(pin, upstream, new, place=_link)
        (new / STAMP).write_text(inputs)
        shutil.rmtree(tree, ignore_errors=True)
        new.rename(tree)
    return tree


def fingerprint(wheel: PinnedWheel) -> str:
    """Return a digest of all that a tree is made from, our files' text aside."""
    digest = hashlib.sha256(wheel.sha256.encode())
    sources = [PIN_FILE, REPOSITORY / "NOTICE"]
    for package in ("patches", "fork"):
        sources += sorted((REPOSITORY / package).rglob("*.py"))
    for source in sources:
        digest.update(str(source.relative_to(REPOSITORY)).encode())
        digest.update(source.read_bytes())
    for _, name in our_files():
        digest.update(str(name).encode())
    return digest.hexdigest()


def _link(source: Path, target: Path) -> None:
    assert source.is_relative_to(OVERLAY) or source.is_relative_to(KERNELS)
    target.symlink_to(source)
