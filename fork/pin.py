"""What UPSTREAM.toml pins: upstream releases and the hash of each of their wheels."""

from __future__ import annotations

import os
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from fork.errors import BuildError

REPOSITORY = Path(__file__).resolve().parent.parent
PIN_FILE = REPOSITORY / "UPSTREAM.toml"
VERSION_VARIABLE = "SGLANG_UPSTREAM_VERSION"
# The end of each command's --help.
CHOOSING_A_RELEASE = (
    f"{VERSION_VARIABLE} chooses one of the upstream releases in {PIN_FILE.name}; the "
    "first there is the default."
)


@dataclass(frozen=True)
class PinnedWheel:
    """One upstream wheel: its file name and the sha256 that it must have."""

    filename: str
    sha256: str

    @property
    def python_version(self) -> str:
        """The CPython that the wheel is for, as ``3.11``."""
        interpreter = next(iter(parse_wheel_filename(self.filename)[3])).interpreter
        return f"3.{interpreter.removeprefix('cp3')}"

    @property
    def platform(self) -> str:
        """The platform tag, as ``manylinux_2_34_x86_64``."""
        return next(iter(parse_wheel_filename(self.filename)[3])).platform


@dataclass(frozen=True)
class Pin:
    """An upstream release, the fork's version of it, and every supported wheel."""

    name: str
    version: str
    fork_version: str
    wheels: tuple[PinnedWheel, ...]

    def fork_filename(self, wheel: PinnedWheel) -> str:
        """Return the name of the fork wheel that is built from an upstream wheel."""
        return wheel.filename.replace(
            f"{self.name}-{self.version}-", f"{self.name}-{self.fork_version}-"
        )

    def wheel_for_this_interpreter(self) -> PinnedWheel:
        """Return the wheel that the running interpreter can install.

        Raises:
            BuildError: none of the pinned wheels fits it.
        """
        tags = set(sys_tags())
        for wheel in self.wheels:
            if parse_wheel_filename(wheel.filename)[3] & tags:
                return wheel
        supported = "\n  ".join(wheel.filename for wheel in self.wheels)
        raise BuildError(
            f"No pinned {self.name} {self.version} wheel fits Python "
            f"{sys.version_info.major}.{sys.version_info.minor} on this platform. "
            f"{PIN_FILE.name} has:\n  {supported}"
        )


def read_pin(path: Path = PIN_FILE) -> Pin:
    """Read the release that ``SGLANG_UPSTREAM_VERSION`` names, by default the first.

    Raises:
        BuildError: the file does not pin that release, a key is missing, or the file is
            not TOML.
    """
    pins = read_pins(path)
    asked = os.environ.get(VERSION_VARIABLE)
    if not asked:
        return pins[0]
    for pin in pins:
        if pin.version == asked:
            return pin
    supported = ", ".join(pin.version for pin in pins)
    raise BuildError(
        f"{VERSION_VARIABLE}={asked}: {path.name} pins no such release of "
        f"{pins[0].name}. Choose one of {supported}."
    )


def read_pins(path: Path = PIN_FILE) -> list[Pin]:
    """Read every supported release, newest first.

    Raises:
        BuildError: a key is missing or the file is not TOML.
    """
    try:
        document = tomllib.loads(path.read_text())
        return [
            Pin(
                name=document["name"],
                version=release["version"],
                fork_version=release["fork_version"],
                wheels=tuple(
                    PinnedWheel(filename, sha256)
                    for filename, sha256 in release["wheels"].items()
                ),
            )
            for release in document["release"]
        ]
    except KeyError as error:
        raise BuildError(f"{path.name}: the key {error} is missing.") from error
    except tomllib.TOMLDecodeError as error:
        raise BuildError(f"{path.name} is not valid TOML: {error}") from error
