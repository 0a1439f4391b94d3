"""Write a table of measured configs for this machine's GPU.

    python -m sgl_kernel_nvfp4.autotune --output tuned.json
    SGL_NVFP4_TUNED_TABLE=tuned.json python -m sglang.launch_server ...

It measures every config that fits the device on the shapes of Qwen3.5 layers, or on the
``--shape`` given, and keeps the fastest.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import torch

from sgl_kernel_nvfp4 import launches
from sgl_kernel_nvfp4.config import Device, GemmConfig
from sgl_kernel_nvfp4.formats import CODE_ALIGNMENT, round_up, scale_shape
from sgl_kernel_nvfp4.measure import copies_beyond_cache, measure
from sgl_kernel_nvfp4.model_shapes import LAYERS, TENSOR_PARALLEL
from sgl_kernel_nvfp4.policy import current_device, load_table
from sgl_kernel_nvfp4.policy.choose import SPLIT_KERNELS, SPLITS
from sgl_kernel_nvfp4.policy.table import SCHEMA
from sgl_kernel_nvfp4.workspace import workspace

KERNELS = ("w4a4_gemm", "w4a16_gemm", "w4a4_argmax")
ROWS = (1, 2, 4, 8, 16, 32, 64)
WARPS = (2, 4, 8)
STAGES = (2, 3, 4, 5)
LANES = 32
SCALE_BYTES_PER_LOAD = 4

TimeOf = Callable[[GemmConfig], float]


def candidates(kernel: str, m: int, k: int, device: Device) -> Iterator[GemmConfig]:
    """Configs worth measuring: the table's own, and their neighbours.

    Left out is what does not fit a block, what loads scales byte by byte because a tile
    of them has less than four bytes for each thread, and tiles with idle rows.
    """
    seen = set()
    rules = [rule for rule in load_table().rules(kernel, device) if rule.applies(m, k)]
    least = min(rule.config.block_m for rule in rules)
    tiles = [rule.config for rule in rules if rule.config.block_m == least]
    splits = SPLITS if kernel in SPLIT_KERNELS else (1,)
    for tile, warps, stages, split in itertools.product(tiles, WARPS, STAGES, splits):
        config = replace(tile, num_warps=warps, num_stages=stages, split_k=split)
        rows = config.block_n
        if kernel != "w4a16_gemm":
            rows = min(rows, config.block_m)
        scale_bytes = rows * config.block_k // 16
        if (
            config not in seen
            and split <= -(-k // config.block_k)
            and config.shared_bytes(kernel) <= device.shared_per_block
            and scale_bytes >= SCALE_BYTES_PER_LOAD * LANES * warps
        ):
            seen.add(config)
            yield config


def fastest(
    kernel: str, m: int, k: int, device: Device, time_of: TimeOf
) -> tuple[GemmConfig, float]:
    """The candidate with the least time; those that fail to run are left out."""
    best: tuple[GemmConfig, float] | None = None
    for config in candidates(kernel, m, k, device):
        try:
            time = time_of(config)
        except RuntimeError as error:  # out of registers or of shared memory
            print(f"{kernel} {config}: {error}", file=sys.stderr)
            continue
        if best is None or time < best[1]:
            best = (config, time)
    if best is None:
        raise RuntimeError(f"no config of {kernel} for M={m}, K={k} ran")
    return best


def tuned_table(
    shapes: list[tuple[str, int, int, int]],
    device: Device,
    timer: Callable[[str, int, int, int], TimeOf],
) -> dict[str, object]:
    """A table in the format of ``policy.table`` for (kernel, M, N, K) in ``shapes``."""
    lines = []
    for kernel, m, n, k in shapes:
        config, time = fastest(kernel, m, k, device, timer(kernel, m, n, k))
        print(f"{kernel} M={m} N={n} K={k}: {time:.2f} us, {config}")
        chosen = asdict(config)
        del chosen["native"]
        lines.append(
            {
                "capability": list(device.capability),
                "multiprocessors": device.multiprocessors,
                "kernel": kernel,
                "m": m,
                "n": n,
                "k": k,
                "microseconds": round(time, 3),
                "config": chosen,
            }
        )
    return {"schema": SCHEMA, "devices": [], "tuned": lines}


def cuda_timer(kernel: str, m: int, n: int, k: int) -> TimeOf:
    """Time of a config of ``kernel`` on the current GPU, in microseconds."""
    device = torch.device("cuda")
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    copies = copies_beyond_cache(n * k * 9 // 16, cache)
    width = round_up(k, CODE_ALIGNMENT) // 2

    def codes(*shape: int) -> torch.Tensor:
        return torch.randint(0, 256, shape, dtype=torch.uint8, device=device)

    def scales(*shape: int) -> torch.Tensor:
        return torch.ones(shape, device=device).to(torch.float8_e4m3fn)

    b = codes(copies, n, width)
    b_scale = scales(copies, *scale_shape(n, k))
    alpha = torch.ones(1, device=device)
    x = torch.randn(m, k, device=device).to(torch.bfloat16)
    a, a_scale = codes(m, width), scales(*scale_shape(m, k))
    out = torch.empty(m, n, dtype=torch.bfloat16, device=device)
    index = torch.empty(m, dtype=torch.int64, device=device)
    value = torch.empty(m, dtype=torch.float32, device=device)

    def time_of(config: GemmConfig) -> float:
        floats = launches.partial_floats(m, n, config)
        tiles = launches.gemm_tiles(m, n, config)

        def call(copy: int) -> None:
            scratch = workspace(device, floats, tiles, m)
            weight = (b[copy], b_scale[copy], alpha)
            if kernel == "w4a4_gemm":
                launch = launches.w4a4_gemm(
                    a, a_scale, *weight, out, 2 * width, config, scratch
                )
            elif kernel == "w4a16_gemm":
                launch = launches.w4a16_gemm(x, *weight, out, config, scratch)
            else:
                launch = launches.w4a4_argmax(
                    a, a_scale, *weight, index, value, 2 * width, 0, config, scratch
                )
            launch.run()

        return measure(call, copies).median

    return time_of


def model_shapes(kernels: tuple[str, ...], rows: tuple[int, ...]) -> list:
    """(kernel, M, N, K) of every dense layer of the models, without repetition."""
    found = {
        (kernel, m, *layer.shape(size))
        for layer in LAYERS
        if not layer.experts
        for size in TENSOR_PARALLEL
        for kernel in kernels
        if (kernel == "w4a4_argmax") == (layer.layer == "lm_head")
        for m in rows
    }
    return sorted(found)


def _shape(text: str) -> tuple[int, int]:
    n, _, k = text.partition("x")
    return int(n), int(k)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="table to write")
    parser.add_argument("--kernel", choices=KERNELS, action="append")
    parser.add_argument("--m", type=int, action="append", help="rows; may repeat")
    parser.add_argument("--shape", type=_shape, action="append", metavar="NxK")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error(
            "no CUDA device: tuning measures, so it needs the GPU it tunes for"
        )
    kernels = tuple(options.kernel or KERNELS)
    rows = tuple(options.m or ROWS)
    shapes = model_shapes(kernels, rows)
    if options.shape:
        shapes = [(x, m, *s) for s in options.shape for x in kernels for m in rows]
    device = current_device(torch.device("cuda"))
    table = tuned_table(shapes, device, cuda_timer)
    options.output.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
