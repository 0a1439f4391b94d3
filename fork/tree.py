"""Assembles the fork's files: upstream's wheel unpacked, patched and laid over."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from pathlib import Path

from wheel.wheelfile import WheelFile

from fork.errors import BuildError
from fork.pin import REPOSITORY, Pin
from patches.engine.apply import PatchError, apply_series
from patches.series import load_series

OVERLAY = REPOSITORY / "python"
KERNELS = REPOSITORY / "sgl-kernel"
CONSOLE_SCRIPTS = {"sglang-nextn-inspect": "sglang_nextn_inspect:main"}
LICENCE_FILES = ("LICENSE", "NOTICE")
_SKIPPED = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}

Place = Callable[[Path, Path], object]


def assemble(pin: Pin, wheel: Path, tree: Path, place: Place = shutil.copyfile) -> None:
    """Fill the empty folder ``tree`` with what the fork wheel holds, RECORD aside.

    Args:
        wheel: the upstream wheel, its hash checked.
        place: puts one of our files (first argument) at its path in the tree.

    Raises:
        BuildError: a patch does not fit, or an overlay file exists upstream.
    """
    with WheelFile(wheel) as archive:
        archive.extractall(tree)
    try:
        apply_series(tree / "sglang", pin.version, load_series())
    except PatchError as error:
        raise BuildError(str(error)) from error
    for source, name in our_files():
        target = tree / name
        if target.exists():
            raise BuildError(
                f"{source.relative_to(REPOSITORY)} would replace upstream's {name}. "
                "Change upstream files with a patch."
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        place(source, target)
    _set_version(pin, tree)


def our_files() -> Iterator[tuple[Path, Path]]:
    """Yield every file of the overlay and the kernels with its path in the wheel."""
    for root in (OVERLAY, KERNELS):
        for path in sorted(root.rglob("*")):
            if path.is_file() and not _SKIPPED & set(path.parts):
                yield path, path.relative_to(root)


def dist_info(tree: Path) -> Path:
    """Return the one ``.dist-info`` folder of an unpacked wheel."""
    found = list(tree.glob("*.dist-info"))
    if len(found) != 1:
        raise BuildError(f"{tree} has {len(found)} dist-info folders, expected one")
    return found[0]


def _set_version(pin: Pin, tree: Path) -> None:
    """Give the tree the fork's version, licence files and top-level packages."""
    old = dist_info(tree)
    new = old.with_name(f"{pin.name}-{pin.fork_version}.dist-info")
    old.rename(new)
    metadata = new / "METADATA"
    metadata.write_text(
        re.sub(
            r"^Version: .*$",
            f"Version: {pin.fork_version}",
            metadata.read_text(),
            count=1,
            flags=re.MULTILINE,
        )
    )
    _add_console_scripts(new / "entry_points.txt")
    kernels = sorted(path.name for path in KERNELS.iterdir() if path.is_dir())
    modules = sorted(path.stem for path in OVERLAY.glob("*.py"))
    (new / "top_level.txt").write_text("\n".join([pin.name, *kernels, *modules]) + "\n")
    for name in LICENCE_FILES:
        shutil.copyfile(REPOSITORY / name, new / "licenses" / f"{name}.nextn")
    (tree / pin.name / "_version.py").write_text(_version_module(pin))


def _add_console_scripts(path: Path) -> None:
    entry_points = ConfigParser(delimiters=("=",))
    entry_points.optionxform = str  # type: ignore[method-assign, assignment]
    entry_points.read(path)
    entry_points["console_scripts"].update(CONSOLE_SCRIPTS)
    with path.open("w") as file:
        entry_points.write(file)


def _version_module(pin: Pin) -> str:
    release, _, local = pin.fork_version.partition("+")
    parts = ", ".join([*release.split("."), repr(local)])
    return (
        '"""Version of the NEXTN fork of SGLang."""\n\n'
        f"version = __version__ = {pin.fork_version!r}\n"
        f"version_tuple = __version_tuple__ = ({parts})\n"
        "commit_id = __commit_id__ = None\n"
    )
