"""The servers that tests share. Each start costs half a minute, so they are few.

| name | model | speculation | radix cache | overlap | tp |
| --- | --- | --- | --- | --- | --- |
| dense_nextn | dense | NEXTN | extra_buffer | upstream's choice | 1 |
| dense_plain | dense | none | no_buffer | off | 1 |
| moe_nextn | MoE | NEXTN | extra_buffer | upstream's choice | 1 |
| moe_plain | MoE | none | extra_buffer | upstream's choice | 1 |
| tensor_parallel_nextn | dense | NEXTN | no_buffer | off | 2 |

Three more have one test file each: the small pool of test_draft_kv.py, which retracts
requests and must be fresh, and the aliases that test_alias.py compares NEXTN with.

Every one splits its prompts: a chunk is smaller than the longest prompt. dense_plain
is what dense_nextn is compared with; it runs without overlap, since with it upstream
counts each token one step late towards the penalties.
"""

from __future__ import annotations

from dataclasses import dataclass

from fork.alias import alias_tree
from local_server import ServerConfig

CHUNK = 128

_EXTRA_BUFFER = ("--mamba-radix-cache-strategy", "extra_buffer")
_NO_BUFFER = (
    "--mamba-radix-cache-strategy",
    "no_buffer",
    "--disable-overlap-schedule",
)
_COMMON = (
    *("--chunked-prefill-size", str(CHUNK)),
    *("--random-seed", "0"),
    "--skip-server-warmup",
    # An idle scheduler polls without a pause, and two of them fill this machine.
    "--sleep-on-idle",
    # A tiny model likes white space, and JSON allows any amount of it.
    "--constrained-json-disable-any-whitespace",
)

# Asked of moe_plain and not to be had on a CPU: one is decided in resolution, one when
# the decode step would be captured.
ASKED_IN_VAIN = {
    "sampling_backend": ("flashinfer", "pytorch"),
    "cuda_graph_backend_decode": ("full", "disabled"),
}
_ASKED_IN_VAIN = (
    "--enable-metrics",
    *("--sampling-backend", "flashinfer"),
    *("--cuda-graph-backend-decode", "full"),
)


@dataclass(frozen=True)
class SharedServer:
    """One row of the table.

    Attributes:
        model: "dense" or "moe".
        upstream: run upstream's own tree with the CPU patches alone.
    """

    model: str
    nextn: bool
    arguments: tuple[str, ...]
    upstream: bool = False

    def config(self, folders: dict[str, str]) -> ServerConfig:
        """Return what to start, given the folder of each model."""
        return ServerConfig(
            folders[self.model],
            nextn=self.nextn,
            arguments=(*_COMMON, *self.arguments),
            environment=((("PYTHONPATH", str(alias_tree())),) if self.upstream else ()),
        )


SERVERS = {
    "dense_nextn": SharedServer("dense", True, (*_EXTRA_BUFFER, "--enable-metrics")),
    "dense_plain": SharedServer("dense", False, _NO_BUFFER),
    "moe_nextn": SharedServer("moe", True, _EXTRA_BUFFER),
    "moe_plain": SharedServer("moe", False, (*_EXTRA_BUFFER, *_ASKED_IN_VAIN)),
    "tensor_parallel_nextn": SharedServer("dense", True, (*_NO_BUFFER, "--tp", "2")),
}


# Ten requests do not fit together, and are let in all the same.
SMALL_POOL_TOKENS = 512
SMALL_POOL = SharedServer(
    "dense",
    True,
    (
        *_EXTRA_BUFFER,
        *("--max-total-tokens", str(SMALL_POOL_TOKENS)),
        *("--schedule-conservativeness", "0.1"),
    ),
)


def speculating(model: str, num_steps: int, upstream: bool = False) -> SharedServer:
    """A server asked for NEXTN with a chain of ``num_steps``."""
    speculation = {
        "--speculative-algorithm": "NEXTN",
        "--speculative-num-steps": num_steps,
        "--speculative-eagle-topk": 1,
        "--speculative-num-draft-tokens": num_steps + 1,
    }
    flags = (str(word) for flag in speculation.items() for word in flag)
    return SharedServer(model, False, (*_EXTRA_BUFFER, *flags), upstream)


# In the order in which tests use them, so that none is started twice.
ALL_SERVERS = {
    "dense_nextn": SERVERS["dense_nextn"],
    "dense_plain": SERVERS["dense_plain"],
    "dense_small_pool": SMALL_POOL,
    "dense_alias": speculating("dense", 3, upstream=True),
    "moe_alias": speculating("moe", 3, upstream=True),
    **SERVERS,
}
