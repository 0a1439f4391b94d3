"""``python -m fork``: build the fork wheel, or bring the editable tree up to date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fork.editable import refresh_tree
from fork.errors import BuildError
from fork.pin import read_pin
from fork.wheel import build_fork_wheel


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m fork", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    wheel = commands.add_parser("wheel", help="build the wheel for this Python")
    wheel.add_argument("directory", type=Path, nargs="?", default=Path("dist"))
    commands.add_parser(
        "refresh",
        help="after a change to a patch or a new file: rebuild build/editable",
    )
    options = parser.parse_args(arguments)
    try:
        pin = read_pin()
        pinned = pin.wheel_for_this_interpreter()
        if options.command == "refresh":
            print(refresh_tree(pin, pinned))
            return 0
        options.directory.mkdir(parents=True, exist_ok=True)
        print(build_fork_wheel(pin, pinned, options.directory))
        return 0
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
