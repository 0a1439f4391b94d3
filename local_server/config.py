"""What a local server is started with."""

from __future__ import annotations

import sys
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
            few megabytes gets a pool that fills the machine.
        max_mamba_cache_size: size of the state pool, in sequences.
        max_running_requests: requests in one batch.
        arguments: more flags for ``sglang.launch_server``.
        environment: more variables for the server, as pairs.
    """

    model: str
    nextn: bool = False
    dtype: str = "float32"
    max_total_tokens: int = 16384
    max_mamba_cache_size: int = 128
    max_running_requests: int = 16
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    def without_speculation(self) -> ServerConfig:
        return replace(self, nextn=False)

    def command(self, port: int) -> list[str]:
        """Return the command line; a flag in ``arguments`` wins over our own."""
        command = [sys.executable, "-m", "sglang.launch_server"]
        command += ["--model-path", self.model, "--dtype", self.dtype]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        command += ["--max-total-tokens", str(self.max_total_tokens)]
        command += ["--max-mamba-cache-size", str(self.max_mamba_cache_size)]
        command += ["--max-running-requests", str(self.max_running_requests)]
        if self.nextn:
            command += ["--speculative-algorithm", "NEXTN"]
        return [*command, *self.arguments]

    def variables(self) -> dict[str, str]:
        """Return what the server's environment has beyond this process's."""
        exact = {"SGLANG_MAMBA_CONV_DTYPE": "float32"}
        return {
            **(exact if self.dtype == "float32" else {}),
            **dict(self.environment),
        }
