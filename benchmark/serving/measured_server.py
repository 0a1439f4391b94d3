"""A real server with the probe inside it, warm, and the client that measures it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import httpx
from probe import forward_probe
from probe.forward_probe import FOLDER_VARIABLE, REPLAY_FILE
from probe.rounds import Round, read_floor, read_rounds

from demo.measure import Completer, Measurement
from fork.alias import alias_tree
from local_server import LocalServer, ServerConfig, plugin_environment

WARM_UP_PROMPT = "import os\n"
WARM_UP_TOKENS = 32


@dataclass(frozen=True)
class Served:
    """Prompts that one server completed at once.

    Attributes:
        rounds: decode rounds in which every stream took part.
    """

    measurements: list[Measurement]
    seconds: float
    rounds: list[Round]

    @property
    def tokens_per_second(self) -> float:
        return sum(one.tokens for one in self.measurements) / self.seconds


class MeasuredServer:
    """A server as a ``with`` block.

    Args:
        config: what to start; its sizes and its speculation.
        folder: gets the log and what the probe notes.
        is_alias: start upstream's tree instead of the fork's.
        cores: that compute, one thread each, as ``0`` or ``0-1``; None for all.
    """

    def __init__(
        self,
        config: ServerConfig,
        folder: Path,
        is_alias: bool = False,
        cores: str | None = None,
    ):
        folder.mkdir(parents=True, exist_ok=True)
        for old in [*folder.glob("forwards-*.csv"), *folder.glob(REPLAY_FILE)]:
            old.unlink()
        self.folder = folder
        variables = {FOLDER_VARIABLE: str(folder)}
        if cores is not None:
            variables["SGLANG_CPU_OMP_THREADS_BIND"] = cores
        environment = plugin_environment(
            Path(forward_probe.__file__),
            folder / "path",
            variables,
            str(alias_tree()) if is_alias else "",
        )
        probed = replace(config, environment=environment)
        self.process = LocalServer(probed, folder / "server.log")

    def __enter__(self) -> MeasuredServer:
        try:
            self.process.wait()
        except BaseException:
            self.process.stop()
            raise
        self.completer = Completer(self.process.url)
        for _ in range(3):
            self.completer.stream(WARM_UP_PROMPT, WARM_UP_TOKENS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.stop()

    def serve(self, prompts: Sequence[str], tokens: int) -> Served:
        """Complete prompts at once, each to at most ``tokens`` new tokens."""
        started = time.perf_counter()
        with ThreadPoolExecutor(len(prompts)) as pool:
            measured = list(
                pool.map(lambda text: self.completer.stream(text, tokens), prompts)
            )
        ended = time.perf_counter()
        self.make_probe_write()
        rounds = read_rounds(self.folder, started, ended)
        whole = [each for each in rounds if each.batch_size == len(prompts)]
        return Served(measured, ended - started, whole)

    def floor(self, prompts: Sequence[str], tokens: int) -> float:
        """Seconds of one round's forwards, called in a loop without anything else."""
        (self.folder / REPLAY_FILE).write_text(str(len(prompts)))
        started = time.perf_counter()
        self.serve(prompts, tokens)
        # The replay wrote to cache slots of committed tokens.
        self.flush_cache()
        return read_floor(self.folder, started, time.perf_counter())

    def flush_cache(self) -> None:
        url = f"{self.process.url}/flush_cache"
        httpx.post(url, trust_env=False, timeout=60).raise_for_status()

    def make_probe_write(self) -> None:
        """Prefill once more: the probe writes what it holds before it."""
        self.completer.stream(WARM_UP_PROMPT, 1)
