"""Every kernel variant that the table of configs can choose, as a launch to compile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from nvfp4_proof.cases import (
    Case,
    argmax_case,
    gemm_case,
    grouped_case,
    w4a16_case,
)
from nvfp4_proof.static_gate import Limits
from sgl_kernel_nvfp4.config import Device, GemmConfig
from sgl_kernel_nvfp4.launch import Launch
from sgl_kernel_nvfp4.policy import Table
from sgl_kernel_nvfp4.policy.choose import SPLIT_KERNELS, SPLITS

PREFILL_BLOCK_N = 128
"""Tiles this wide are for prefill."""

PREFILL_LIMIT, DECODE_LIMIT = 4.0, 7.0
W4A16_LIMIT = 24.0
"""Instructions for each HMMA: most of them turn codes into bfloat16, exactly."""


@dataclass(frozen=True)
class Variant:
    """One compiled form of a kernel."""

    name: str
    kernel: str
    config: GemmConfig
    case: Case
    limits: Limits


def limits(kernel: str, config: GemmConfig) -> Limits:
    code_rows = config.block_n + (config.block_m if kernel != "w4a16_gemm" else 0)
    code_bytes = code_rows * config.block_k // 2
    if kernel == "w4a16_gemm":
        activations = config.block_m * config.block_k * 2
        return Limits(W4A16_LIMIT, code_bytes + activations, native=False)
    prefill = config.block_n >= PREFILL_BLOCK_N
    return Limits(PREFILL_LIMIT if prefill else DECODE_LIMIT, code_bytes)


def _case(kernel: str, config: GemmConfig, k: int, dtype: torch.dtype) -> Case:
    m, n = config.block_m, config.block_n
    if kernel == "w4a4_gemm":
        return gemm_case(m, n, k, config, dtype)
    if kernel == "w4a16_gemm":
        return w4a16_case(m, n, k, config, dtype, dtype)
    if kernel == "w4a4_argmax":
        return argmax_case(m, n, k, config)
    return grouped_case(4, 2, 2, n, k, config, per_pair=True, out_dtype=dtype)


def launch_of(kernel: str, config: GemmConfig, tail: int, dtype: torch.dtype) -> Launch:
    """A small launch that compiles to the variant; its grid and sizes do not matter."""
    return _case(kernel, config, config.block_k + bool(tail) * 16, dtype).launch


def variants(
    table: Table, device: Device, every_split: bool = True
) -> Iterator[Variant]:
    """All variants for ``device``: every rule, split, tail and output type.

    every_split: else only the greatest split of each rule, which takes the most
    registers; splits differ outside of the main loop.
    """
    for kernel in ("w4a4_gemm", "w4a4_argmax", "w4a4_grouped_gemm", "w4a16_gemm"):
        types = [torch.bfloat16]
        if kernel == "w4a16_gemm":
            types.append(torch.float16)
        for rule in table.rules(kernel, device):
            tails = [0] if rule.k_multiple % rule.config.block_k == 0 else [0, 16]
            splits = [1]
            if kernel in SPLIT_KERNELS:
                splits = [split for split in SPLITS if split <= rule.max_split]
            for split in splits if every_split else splits[-1:]:
                config = replace(rule.config, split_k=split)
                for tail in tails:
                    k = config.block_k + tail
                    for dtype in types:
                        yield Variant(
                            f"{kernel} {config.block_m}x{config.block_n}x"
                            f"{config.block_k} split={split} "
                            f"{'tail' if tail else 'even'} {str(dtype)[6:]}",
                            kernel,
                            config,
                            _case(kernel, config, k, dtype),
                            limits(kernel, config),
                        )
