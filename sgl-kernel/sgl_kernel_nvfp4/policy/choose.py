"""Choose a config: a tuned line, else a rule and the split of K that fills a device."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from sgl_kernel_nvfp4.config import Device, GemmConfig, QuantizeConfig
from sgl_kernel_nvfp4.policy.table import MAX_SPLIT, Rule, Table, load_table

SPLITS = (1, 2, 4, 8)
RESERVED_SHARED_BYTES = 1024
"""Shared memory that the driver keeps for itself in every block."""

SPLIT_KERNELS = ("w4a4_gemm", "w4a16_gemm")


def blocks_per_multiprocessor(config: GemmConfig, kernel: str, device: Device) -> int:
    """Blocks that shared memory admits at once on one multiprocessor."""
    shared = config.shared_bytes(kernel) + RESERVED_SHARED_BYTES
    return max(device.shared_per_multiprocessor // shared, 1)


def choose_split(
    config: GemmConfig,
    kernel: str,
    m: int,
    n: int,
    k: int,
    device: Device,
    max_split: int = MAX_SPLIT,
) -> int:
    """The split with the least modelled time, in units of one BLOCK_K step.

    A block takes its steps of K and about two more for its first loads and its store;
    blocks beyond a full device wait. A split adds one step for the reduction. The model
    only ranks splits; ``autotune`` replaces it by measurement.
    """
    tiles = -(-m // config.block_m) * -(-n // config.block_n)
    steps = -(-k // config.block_k)
    room = device.multiprocessors * blocks_per_multiprocessor(config, kernel, device)

    def cost(split: int) -> int:
        waves = -(-tiles * split // room)
        return waves * (-(-steps // split) + 2) + (split > 1)

    return min((s for s in SPLITS if s <= min(steps, max_split)), key=cost)


def _usable_rules(
    kernel: str, m: int, k: int, device: Device, table: Table, block_m: int
) -> Iterator[Rule]:
    """Rules that fit, best first: those made for M, then greater tiles of rows."""
    fitting = [
        rule
        for rule in table.rules(kernel, device)
        if k % rule.k_multiple == 0
        and block_m in (0, rule.config.block_m)
        and rule.config.shared_bytes(kernel) <= device.shared_per_block
    ]
    if not block_m:
        yield from (rule for rule in fitting if rule.applies(m, k))
    yield from sorted(fitting, key=lambda rule: -rule.config.block_m)


@functools.lru_cache(maxsize=4096)
def _choose(
    kernel: str, m: int, n: int, k: int, device: Device, table: Table, block_m: int
) -> GemmConfig:
    tuned = table.tuned_config(kernel, m, n, k, device)
    if (
        tuned
        and tuned.shared_bytes(kernel) <= device.shared_per_block
        and block_m in (0, tuned.block_m)
    ):
        return replace(tuned, native=device.has_fp4_mma)
    for rule in _usable_rules(kernel, m, k, device, table, block_m):
        config = replace(rule.config, native=device.has_fp4_mma)
        if kernel in SPLIT_KERNELS:
            split = choose_split(config, kernel, m, n, k, device, rule.max_split)
            config = replace(config, split_k=split)
        return config
    raise ValueError(
        f"no config of {kernel} for M={m}, N={n}, K={k} fits a block with "
        f"{device.shared_per_block} bytes of shared memory"
    )


def choose_gemm(
    kernel: str,
    m: int,
    n: int,
    k: int,
    device: Device,
    table: Table | None = None,
    block_m: int = 0,
) -> GemmConfig:
    """Config of ``kernel`` for an [m, k] x [n, k] product on ``device``.

    block_m: if not 0, take a config with exactly this tile of rows, as the grouped GEMM
    must, since its rows were sorted into blocks of that size.
    Raises ValueError when nothing in the table fits the device.
    """
    return _choose(kernel, m, n, k, device, table or load_table(), block_m)


def choose_quantize(m: int, k: int, device: Device) -> QuantizeConfig:
    """Config of the quantisation kernels: one row, 16 bytes a thread."""
    block_k = 256
    while block_k < min(k, 1024):
        block_k *= 2
    return QuantizeConfig(
        rows=1,
        block_k=block_k,
        num_warps=block_k // 256,
        native=device.has_fp4_conversion,
    )


def moe_block_m(tokens: int, top_k: int, experts: int) -> int:
    """Block size to sort tokens by: the tile that holds an expert's average rows."""
    rows = tokens * top_k / max(experts, 1)
    return 16 if rows <= 16 else 32 if rows <= 32 else 64
