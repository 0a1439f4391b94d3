"""Editable installs: a patched tree under build/ whose own files are links to ours."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from fork.fetch import fetch_wheel
from fork.pin import REPOSITORY, Pin, PinnedWheel
from fork.stamped import fingerprint, stamped_tree
from fork.tree import KERNELS, OVERLAY, assemble, dist_info
from fork.wheel import pack

TREES = REPOSITORY / "build" / "editable"


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

    def make(scratch: Path, tree: Path) -> None:
        assemble(pin, fetch_wheel(pin, wheel, scratch), tree, place=_link)

    tree = TREES / f"{pin.version}-py{wheel.python_version}"
    return stamped_tree(tree, fingerprint(wheel), make)


def _link(source: Path, target: Path) -> None:
    assert source.is_relative_to(OVERLAY) or source.is_relative_to(KERNELS)
    target.symlink_to(source)
