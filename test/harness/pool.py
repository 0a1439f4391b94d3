"""One server for each configuration, at most a few alive at a time."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.client import Client
from local_server import LocalServer, ServerConfig


class ServerPool:
    """Starts servers when they are first asked for, and stops the one unused longest.

    Args:
        logs: folder for the servers' logs.
        limit: how many servers may be alive, for the sake of memory.
    """

    def __init__(self, logs: Path, limit: int = 2):
        self.logs = logs
        self.limit = limit
        self._alive: dict[ServerConfig, LocalServer] = {}
        # /health makes a token and takes a second: once a server is enough.
        self._clients: dict[ServerConfig, Client] = {}
        self._started = 0

    def get(self, *configs: ServerConfig) -> list[Client]:
        """Return a client for each configuration; what must be started starts at once.

        Raises:
            ServerError: a server did not start, or one has died since.
        """
        assert len(configs) <= self.limit
        for config in configs:
            server = self._alive.pop(config, None)
            if server is None:
                self._make_room(keep=configs)
                self._started += 1
                log = self.logs / f"server-{self._started}.log"
                server = LocalServer(config, log)
            self._alive[config] = server
        return [self._ready(config) for config in configs]

    def process_of(self, config: ServerConfig) -> subprocess.Popen[bytes]:
        """Return the process of a server that is alive."""
        return self._alive[config].process

    def stop(self) -> None:
        """Stop every server."""
        for config in [*self._alive]:
            self._end(config)

    def _ready(self, config: ServerConfig) -> Client:
        server = self._alive[config]
        try:
            if config not in self._clients:
                server.wait()
                self._clients[config] = Client(server.url, server.log)
            server.check()
        except BaseException:
            self._end(config)
            raise
        return self._clients[config]

    def _end(self, config: ServerConfig) -> None:
        self._clients.pop(config, None)
        self._alive.pop(config).stop()

    def _make_room(self, keep: tuple[ServerConfig, ...]) -> None:
        idle = [config for config in self._alive if config not in keep]
        while len(self._alive) >= self.limit and idle:
            self._end(idle.pop(0))
