"""What a local server is started with."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ServerConfig:
    """A server's model, its speculation and its size; equal configs are equal servers.

    Attributes:
        model: folder of a checkpoint, or a name that SGLang resolves.
        nextn: draft with the checkpoint's own MTP head.
        dtype: of weights and activations; with ``float32`` the convolution states are
            kept in float32 as well, so that output equals the reference exactly.
        max_total_tokens: size of the KV pool, in tokens. Without a bound, a model of a
            few megabytes gets a pool that fills the machine; None leaves it to SGLang.
        max_mamba_cache_size: size of the state pool, in sequences, likewise.
        max_running_requests: requests in one batch, likewise.
        arguments: more flags for ``sglang.launch_server``; they win over the above.
        environment: more variables of the server's environment, likewise.
    """

    model: str
    nextn: bool = False
    dtype: str = "float32"
    max_total_tokens: int | None = 16384
    max_mamba_cache_size: int | None = 128
    max_running_requests: int | None = 16
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    def without_speculation(self) -> ServerConfig:
        """Return the same server with no ``--speculative-…`` flag at all."""
        return replace(
            self, nextn=False, arguments=tuple(_not_speculative(self.arguments))
        )

    def command(self, port: int) -> list[str]:
        """Return the command line."""
        command = [sys.executable, "-m", "sglang.launch_server"]
        command += ["--model-path", self.model, "--dtype", self.dtype]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        sizes = {
            "--max-total-tokens": self.max_total_tokens,
            "--max-mamba-cache-size": self.max_mamba_cache_size,
            "--max-running-requests": self.max_running_requests,
        }
        for flag, size in sizes.items():
            if size is not None:
                command += [flag, str(size)]
        if self.nextn:
            command += ["--speculative-algorithm", "NEXTN"]
        return [*command, *self.arguments]

    def variables(self) -> dict[str, str]:
        """Return what the server's environment has beyond this process's."""
        exact = {"SGLANG_MAMBA_CONV_DTYPE": "float32"}
        return {**(exact if self.dtype == "float32" else {}), **dict(self.environment)}


def _not_speculative(arguments: Iterable[str]) -> Iterable[str]:
    """Yield the arguments but the speculative flags and their values."""
    dropping = False
    for argument in arguments:
        if argument.startswith("--"):
            dropping = argument.startswith("--speculative-")
        if not dropping:
            yield argument
