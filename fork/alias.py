"""The alias: upstream's wheel with our CPU operators and CPU fixes, and no NEXTN.

A server with this folder first on its ``PYTHONPATH`` is upstream's: there
``--speculative-algorithm NEXTN`` becomes EAGLE by upstream's own code, silently, and
every line of the draft, verify and draft-extend round is upstream's. Only patches from
900 on are in it, which make the CPU engine run at all.
"""

from __future__ import annotations

from pathlib import Path

from wheel.wheelfile import WheelFile

from fork.fetch import fetch_wheel
from fork.pin import REPOSITORY, read_pin
from fork.stamped import fingerprint, stamped_tree
from fork.tree import KERNELS, our_files
from patches.engine.apply import apply_series
from patches.engine.patch import Patch
from patches.series import load_series

TREES = REPOSITORY / "build" / "alias"
FIRST_CPU_PATCH = 900


def alias_tree() -> Path:
    """Return the tree of this interpreter's wheel, built anew if its inputs changed.

    Raises:
        BuildError: the upstream wheel is not to be had.
        PatchError: a CPU patch does not fit without those before it.
    """
    pin = read_pin()
    wheel = pin.wheel_for_this_interpreter()
    patches = [patch for patch in load_series() if patch.number >= FIRST_CPU_PATCH]

    def make(scratch: Path, tree: Path) -> None:
        with WheelFile(fetch_wheel(pin, wheel, scratch)) as archive:
            archive.extractall(tree)
        apply_series(tree / "sglang", pin.version, patches)
        for source, name in _files_of(patches):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).symlink_to(source)

    tree = TREES / f"{pin.version}-py{wheel.python_version}"
    return stamped_tree(tree, fingerprint(wheel), make)


def _files_of(patches: list[Patch]) -> list[tuple[Path, Path]]:
    """The CPU kernels, and the overlay files that travel with the patches."""
    kept = {Path("sglang") / name for patch in patches for name in patch.overlay}
    return [
        (source, name)
        for source, name in our_files()
        if source.is_relative_to(KERNELS) or name in kept
    ]
