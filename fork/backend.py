"""The PEP 517 and PEP 660 hooks through which pip and uv build the fork."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from fork.editable import build_editable_wheel
from fork.errors import BuildError
from fork.pin import Pin, PinnedWheel, read_pin
from fork.wheel import build_fork_wheel

ConfigSettings = Mapping[str, Any] | None
Builder = Callable[[Pin, PinnedWheel, Path], Path]


def build_wheel(
    wheel_directory: str,
    config_settings: ConfigSettings = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the fork wheel for the running interpreter and return its file name."""
    return _build(build_fork_wheel, wheel_directory)


def build_editable(
    wheel_directory: str,
    config_settings: ConfigSettings = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the editable wheel for the running interpreter."""
    return _build(build_editable_wheel, wheel_directory)


def build_sdist(sdist_directory: str, config_settings: ConfigSettings = None) -> str:
    """Refuse: a source archive would need the repository's own history and tests."""
    _stop("this project has no source archive; install from a clone of the repository")


def _build(build: Builder, directory: str) -> str:
    try:
        pin = read_pin()
        return build(pin, pin.wheel_for_this_interpreter(), Path(directory)).name
    except BuildError as error:
        _stop(str(error))


def _stop(message: str) -> NoReturn:
    """End the build with a message and no traceback: the front end shows stderr."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(1)
