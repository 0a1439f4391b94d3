"""Shapes and configs that several tests share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from nvfp4_proof.cases import (
    Case,
    argmax_case,
    combine_case,
    gemm_case,
    grouped_case,
    quantize_case,
    rmsnorm_case,
    w4a16_case,
)
from sgl_kernel_nvfp4.config import GemmConfig
from sgl_kernel_nvfp4.formats import round_up
from sgl_kernel_nvfp4.policy import choose_gemm, choose_quantize
from sgl_kernel_nvfp4.policy.device import RTX_PRO_6000

SHAPES = (
    (208, 1040),  # tails of N and K
    (48, 80),  # smaller than any tile; K % 32 == 16
    (80, 336),  # tails after whole tiles of both
    (512, 128),  # K of Qwen3.5-397B w2, TP8
    (2048, 64),  # Qwen3.5-35B w2, TP8
    (128, 2048),  # Qwen3.5-35B w13, TP8
    (256, 4096),  # Qwen3.5-397B w13, TP8
)
"""(N, K)."""

EXPERTS, TOP_K = 8, 2


def config(kernel: str, m: int, n: int, k: int, block_m: int = 0) -> GemmConfig:
    """What the table gives an RTX PRO 6000."""
    return choose_gemm(kernel, m, n, round_up(k, 32), RTX_PRO_6000, block_m=block_m)


def gemm(m: int, n: int, k: int) -> Case:
    return gemm_case(m, n, k, config("w4a4_gemm", m, n, k))


def w4a16(m: int, n: int, k: int) -> Case:
    return w4a16_case(m, n, k, config("w4a16_gemm", m, n, k))


def w4a16_half(m: int, n: int, k: int) -> Case:
    return w4a16_case(m, n, k, config("w4a16_gemm", m, n, k), torch.float16)


def argmax(m: int, n: int, k: int) -> Case:
    return argmax_case(m, n, k, config("w4a4_argmax", min(m, 64), n, k))


def _block_m(m: int) -> int:
    rows = m * TOP_K / EXPERTS
    return 16 if rows <= 16 else 32 if rows <= 32 else 64


def grouped_up(m: int, n: int, k: int) -> Case:
    chosen = config("w4a4_grouped_gemm", m * TOP_K, n, k, _block_m(m))
    return grouped_case(m, TOP_K, EXPERTS, n, k, chosen, absent=True)


def grouped_down(m: int, n: int, k: int) -> Case:
    chosen = config("w4a4_grouped_gemm", m * TOP_K, n, k, _block_m(m))
    return grouped_case(m, TOP_K, EXPERTS, n, k, chosen, per_pair=True)


def quantize(m: int, n: int, k: int) -> Case:
    return quantize_case(m, k, choose_quantize(m, k, RTX_PRO_6000))


def quantize_linear(m: int, n: int, k: int) -> Case:
    chosen = choose_quantize(m, k, RTX_PRO_6000)
    return quantize_case(m, k, chosen, torch.float16, swizzled=False)


def quantize_portable(m: int, n: int, k: int) -> Case:
    chosen = replace(choose_quantize(m, k, RTX_PRO_6000), native=False)
    return quantize_case(m, k, chosen)


def silu_and_mul(m: int, n: int, k: int) -> Case:
    chosen = choose_quantize(m, k, RTX_PRO_6000)
    return quantize_case(m, k, chosen, gated=True, gate_first=False, per_expert=True)


def rmsnorm(m: int, n: int, k: int) -> Case:
    return rmsnorm_case(m, k, choose_quantize(m, k, RTX_PRO_6000))


def combine(m: int, n: int, k: int) -> Case:
    return combine_case(m, k, TOP_K)


KERNELS: dict[str, Callable[[int, int, int], Case]] = {
    function.__name__: function
    for function in (
        gemm,
        w4a16,
        w4a16_half,
        argmax,
        grouped_up,
        grouped_down,
        quantize,
        quantize_linear,
        quantize_portable,
        silu_and_mul,
        rmsnorm,
        combine,
    )
}
