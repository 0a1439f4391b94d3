"""A folder under build/ that is made anew when what it is made from has changed."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from fork.pin import PIN_FILE, REPOSITORY, PinnedWheel
from fork.tree import our_files

STAMP = "fork-inputs.sha256"


def stamped_tree(tree: Path, inputs: str, make: Callable[[Path, Path], object]) -> Path:
    """Return ``tree``, made anew unless it was made from the same inputs.

    The old tree stays when making the new one fails.

    Args:
        inputs: a digest of all that the tree is made from.
        make: fills its second argument, an empty folder; the first is for scratch.
    """
    stamp = tree / STAMP
    if stamp.is_file() and stamp.read_text() == inputs:
        return tree
    tree.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=tree.parent) as scratch:
        new = Path(scratch) / "tree"
        new.mkdir()
        make(Path(scratch), new)
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
