"""Errors that whoever starts a server can put right, and how they end the command."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


class LaunchError(ValueError):
    """Why a server does not start, in words for the one who starts it.

    The message names what is at fault and what to do; a traceback adds nothing to it.
    A program that embeds SGLang gets the exception.
    """


@contextlib.contextmanager
def exit_on_launch_error() -> Iterator[None]:
    """End the command with the message of a ``LaunchError`` and status 1.

    Raises:
        SystemExit: the block raised a ``LaunchError``.
    """
    try:
        yield
    except LaunchError as error:
        sys.exit(str(error))


def message_or(describe: Callable[[], str]) -> str:
    """Return the message of the ``LaunchError`` being handled.

    Args:
        describe: says what to return for an exception of any other class.
    """
    error = sys.exc_info()[1]
    return str(error) if isinstance(error, LaunchError) else describe()
