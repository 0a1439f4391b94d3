"""A local server is watched while it starts, and stopped with all that it started."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from local_server import LocalServer, ServerConfig, ServerError

# Answers /health, and has a child that ignores interrupts.
SERVER = """
import http.server, subprocess, sys
child = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN)"
child += "; print('child is up', flush=True); time.sleep(600)"
process = subprocess.Popen([sys.executable, "-c", child])
print("child", process.pid, flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@dataclass(frozen=True)
class Program(ServerConfig):
    """A configuration that runs a program of ours in place of SGLang."""

    code: str = ""

    def command(self, port: int) -> list[str]:
        return [sys.executable, "-c", self.code, str(port)]


def test_a_server_that_ends_says_so_with_its_log(tmp_path: Path) -> None:
    code = "print('no such checkpoint'); raise SystemExit(3)"
    server = LocalServer(Program("m", code=code), tmp_path / "log")
    with pytest.raises(ServerError) as raised:
        server.wait(30)
    for words in ("ended with status 3", "no such checkpoint", str(tmp_path / "log")):
        assert words in str(raised.value)


def test_a_server_that_does_not_answer_in_time_is_stopped(tmp_path: Path) -> None:
    code = "import time; time.sleep(600)"
    server = LocalServer(Program("m", code=code), tmp_path / "log")
    with pytest.raises(ServerError, match="no answer within 1 s"):
        server.wait(1)
    assert server.process.poll() is not None


def test_leaving_the_block_stops_children_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("local_server.process.STOP_SECONDS", 0.5)
    with LocalServer(Program("m", code=SERVER), tmp_path / "log") as server:
        server.wait(60)
        deadline = time.monotonic() + 30
        while "child is up" not in server.tail() and time.monotonic() < deadline:
            time.sleep(0.05)
        first, *_ = [line for line in server.tail().splitlines() if "child" in line]
        child = int(first.split()[-1])
        assert alive(child)
    assert not alive(child)


def test_speculative_flags_are_dropped_with_their_values() -> None:
    flags = ("--tp", "2", "--speculative-num-steps", "4", "--trust-remote-code")
    config = ServerConfig("m", nextn=True, arguments=flags)
    plain = config.without_speculation()
    assert plain.arguments == ("--tp", "2", "--trust-remote-code")
    assert "NEXTN" in config.command(1)
    assert not [word for word in plain.command(1) if "speculative" in word]


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that is only not yet waited for does not."""
    try:
        return b"State:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()
    except FileNotFoundError:
        return False
