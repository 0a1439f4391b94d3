"""``python -m fork``: build the fork wheel, or bring the editable tree up to date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fork.editable import refresh_tree
from fork.errors import BuildError
from fork.pin import CHOOSING_A_RELEASE, read_pin, read_pins
from fork.wheel import build_fork_wheel


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m fork", description=__doc__, epilog=CHOOSING_A_RELEASE
    )
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    wheel = commands.add_parser("wheel", help="build the wheel for this Python")
    wheel.add_argument("directory", type=Path, nargs="?", default=Path("dist"))
    release = commands.add_parser(
        "release",
        help="build the wheels for every Python and platform, with checksums and a "
        "bill of materials, for every release that UPSTREAM.toml pins",
    )
    release.add_argument("directory", type=Path, nargs="?", default=Path("dist"))
    commands.add_parser(
        "refresh",
        help="after a change to a patch or a new file: rebuild build/editable",
    )
    options = parser.parse_args(arguments)
    try:
        _COMMANDS[options.command](options)
        return 0
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _refresh(options: argparse.Namespace) -> None:
    pin = read_pin()
    print(refresh_tree(pin, pin.wheel_for_this_interpreter()))


def _wheel(options: argparse.Namespace) -> None:
    pin = read_pin()
    wheel = pin.wheel_for_this_interpreter()
    options.directory.mkdir(parents=True, exist_ok=True)
    print(build_fork_wheel(pin, wheel, options.directory))


def _release(options: argparse.Namespace) -> None:
    # Needs a library that a plain build does without.
    from fork.release import build_release, write_checksums

    options.directory.mkdir(parents=True, exist_ok=True)
    files = [
        path for pin in read_pins() for path in build_release(pin, options.directory)
    ]
    for path in (*files, write_checksums(files, options.directory)):
        print(path)


_COMMANDS = {"refresh": _refresh, "wheel": _wheel, "release": _release}


if __name__ == "__main__":
    sys.exit(main())
