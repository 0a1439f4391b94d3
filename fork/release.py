"""A release: the fork wheel for every Python, checksums, and a bill of materials."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fork.fetch import sha256_of
from fork.pin import REPOSITORY, Pin, read_pins
from fork.sbom import write_sbom
from fork.wheel import build_fork_wheel

CHECKSUMS = "SHA256SUMS"


def build_release(pin: Pin, directory: Path) -> list[Path]:
    """Build every wheel of one upstream release, with a bill of materials.

    Returns the files, wheels first.

    Raises:
        BuildError: an upstream wheel is not to be had, or a patch does not fit it.
    """
    wheels = [build_fork_wheel(pin, wheel, directory) for wheel in pin.wheels]
    sbom = directory / f"{pin.name}-{pin.fork_version}.cdx.json"
    write_sbom(pin, lock_of(pin), wheels, sbom)
    return [*wheels, sbom]


def write_checksums(files: Iterable[Path], directory: Path) -> Path:
    """Write what ``sha256sum --check`` reads."""
    path = directory / CHECKSUMS
    lines = [f"{sha256_of(file)}  {file.name}\n" for file in sorted(files)]
    path.write_text("".join(lines))
    return path


def lock_of(pin: Pin) -> Path:
    """Return the file that pins the dependencies of a release."""
    is_default = pin.version == read_pins()[0].version
    name = "requirements.lock" if is_default else f"requirements-{pin.version}.lock"
    return REPOSITORY / name
