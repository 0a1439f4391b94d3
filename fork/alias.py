"""The alias: upstream's wheel with our CPU operators and CPU fixes, and no NEXTN.

    python benchmark/serving/alias_tree.py

Prints the folder. A server with that folder first on its ``PYTHONPATH`` is upstream's:
there ``--speculative-algorithm NEXTN`` becomes EAGLE by upstream's own code, silently,
and every line of the draft, verify and draft-extend round is upstream's. Only patches
from 900 on are in it, which make the CPU engine run at all.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from wheel.wheelfile import WheelFile

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from fork.fetch import fetch_wheel  # noqa: E402
from fork.pin import PIN_FILE, read_pin  # noqa: E402
from fork.tree import KERNELS, our_files  # noqa: E402
from patches.engine.apply import apply_series  # noqa: E402
from patches.engine.patch import Patch  # noqa: E402
from patches.series import load_series  # noqa: E402

TREES = REPOSITORY / "build" / "alias"
STAMP = "alias-inputs.sha256"
FIRST_CPU_PATCH = 900


def alias_tree() -> Path:
    """Return the tree of this interpreter's wheel, built anew when its inputs changed.

    Raises:
        BuildError: the upstream wheel is not to be had.
        PatchError: a CPU patch does not fit without those before it.
    """
    pin = read_pin()
    wheel = pin.wheel_for_this_interpreter()
    patches = [patch for patch in load_series() if patch.number >= FIRST_CPU_PATCH]
    tree = TREES / wheel.python_version
    inputs = _fingerprint(wheel.sha256, patches)
    stamp = tree / STAMP
    if stamp.is_file() and stamp.read_text() == inputs:
        return tree
    TREES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=TREES) as scratch:
        new = Path(scratch) / "tree"
        with WheelFile(fetch_wheel(pin, wheel, Path(scratch))) as archive:
            archive.extractall(new)
        apply_series(new / "sglang", pin.version, patches)
        for source, name in _files_of(patches):
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).symlink_to(source)
        (new / STAMP).write_text(inputs)
        shutil.rmtree(tree, ignore_errors=True)
        new.rename(tree)
    return tree


def _files_of(patches: list[Patch]) -> list[tuple[Path, Path]]:
    """The CPU kernels, and the overlay files that travel with the patches."""
    kept = {Path("sglang") / name for patch in patches for name in patch.overlay}
    return [
        (source, name)
        for source, name in our_files()
        if source.is_relative_to(KERNELS) or name in kept
    ]


def _fingerprint(wheel_sha256: str, patches: list[Patch]) -> str:
    sources = [PIN_FILE, Path(__file__), *(REPOSITORY / "patches").rglob("*.py")]
    digest = hashlib.sha256(wheel_sha256.encode())
    for source in sorted(sources):
        digest.update(source.read_bytes())
    for _, name in _files_of(patches):
        digest.update(str(name).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    print(alias_tree())
