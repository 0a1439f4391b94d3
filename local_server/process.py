"""A server as a child process: started, watched until it answers, and stopped."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from local_server.config import ServerConfig

POLL_SECONDS = 0.2
STOP_SECONDS = 20.0
KILL_SECONDS = 5.0
TAIL_LINES = 40

# Loopback is never behind a proxy, whatever the environment says.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServerError(Exception):
    """The server did not start, or ended; the message has its command and log."""


class LocalServer:
    """A running server, which its ``with`` block stops together with its children.

    Args:
        config: what to start.
        log: file that gets everything the server prints.
    """

    def __init__(self, config: ServerConfig, log: Path):
        self.config = config
        self.log = log
        self.port = _free_port()
        self.started = time.monotonic()
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **config.variables()}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                config.command(self.port),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A group of its own: Ctrl-C reaches us first, and we stop the server.
                start_new_session=True,
            )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait(
        self,
        timeout: float = 900.0,
        progress: Callable[[str], object] = lambda line: None,
    ) -> LocalServer:
        """Wait until the server answers.

        Args:
            timeout: seconds since the start.
            progress: is called now and then with the last line of the log.

        Raises:
            ServerError: the server ended or did not answer in time; it is stopped.
        """
        while not self.answers():
            progress(self.tail(1))
            self.check()
            if time.monotonic() - self.started > timeout:
                self.stop()
                raise ServerError(self._message(f"no answer within {timeout:.0f} s"))
            time.sleep(POLL_SECONDS)
        return self

    def answers(self) -> bool:
        """Tell whether the server says that it is healthy."""
        try:
            with _OPENER.open(f"{self.url}/health", timeout=10) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def check(self) -> None:
        """Raise a ``ServerError`` if the server has ended."""
        if self.process.poll() is not None:
            self.stop()
            status = self.process.returncode
            raise ServerError(self._message(f"it ended with status {status}"))

    def stop(self) -> None:
        """Stop the server and every process that it started; returns when all ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        if not self._group_ends_within(STOP_SECONDS):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self._group_ends_within(KILL_SECONDS)

    def tail(self, lines: int = TAIL_LINES) -> str:
        """Return the last lines of the log."""
        text = self.log.read_text("utf-8", errors="replace")
        return "\n".join(text.rstrip().splitlines()[-lines:])

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _group_ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.process.poll()
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(0.05)
        return False

    def _message(self, what: str) -> str:
        return (
            f"The server did not start: {what}.\n"
            f"Command: {shlex.join(map(str, self.process.args))}\n"  # type: ignore[arg-type]
            f"End of its log, {self.log}:\n{self.tail()}"
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
