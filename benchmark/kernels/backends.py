"""The GEMMs that are compared, each where it exists on the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from problems import Problem

import sgl_kernel_nvfp4 as kernels

Call = Callable[[int], Any]


class Unavailable(RuntimeError):
    """This machine lacks what a backend needs; the message says what."""


@dataclass
class Operands:
    """Weights in ``copies`` copies, so that none is in a cache when it is read."""

    x: torch.Tensor
    weights: list[torch.Tensor]
    codes: list[torch.Tensor]
    scales: list[torch.Tensor]
    one: torch.Tensor

    @staticmethod
    def make(problem: Problem, copies: int) -> Operands:
        device = torch.device("cuda")
        x = torch.randn(problem.m, problem.k, device=device).to(torch.bfloat16)
        weight = torch.randn(problem.n, problem.k, device=device).to(torch.bfloat16)
        one = torch.ones(1, device=device)
        codes, scale = kernels.quantize(weight, one)
        return Operands(
            x,
            [weight.clone() for _ in range(copies)],
            [codes.clone() for _ in range(copies)],
            [scale.clone() for _ in range(copies)],
            one,
        )


@dataclass(frozen=True)
class Backend:
    """A GEMM to compare, and the widths of what it reads."""

    name: str
    prepare: Callable[[Operands], Call]
    weight_bits: int
    activation_bits: int


def _cublas(operands: Operands) -> Call:
    return lambda copy: torch.nn.functional.linear(operands.x, operands.weights[copy])


def _ours(operands: Operands) -> Call:
    codes, scale = kernels.quantize(operands.x, operands.one)

    def call(copy: int) -> torch.Tensor:
        weight = (operands.codes[copy], operands.scales[copy])
        return kernels.gemm(codes, scale, *weight, operands.one)

    return call


def _ours_with_quantisation(operands: Operands) -> Call:
    def call(copy: int) -> torch.Tensor:
        codes, scale = kernels.quantize(operands.x, operands.one)
        weight = (operands.codes[copy], operands.scales[copy])
        return kernels.gemm(codes, scale, *weight, operands.one)

    return call


def _ours_half(operands: Operands) -> Call:
    def call(copy: int) -> torch.Tensor:
        weight = (operands.codes[copy], operands.scales[copy])
        return kernels.w4a16_gemm(operands.x, *weight, operands.one)

    return call


def _ours_head(operands: Operands) -> Call:
    codes, scale = kernels.quantize(operands.x, operands.one)

    def call(copy: int) -> tuple[torch.Tensor, torch.Tensor]:
        weight = (operands.codes[copy], operands.scales[copy])
        return kernels.argmax_head(codes, scale, *weight, operands.one)

    return call


def _flashinfer(name: str) -> Callable[[Operands], Call]:
    def prepare(operands: Operands) -> Call:
        try:
            from flashinfer import mm_fp4
        except ImportError as error:
            raise Unavailable(f"FlashInfer: {error}") from error
        codes, scale = kernels.quantize(operands.x, operands.one)
        scale = scale.view(torch.uint8)

        def call(copy: int) -> torch.Tensor:
            weight_scale = operands.scales[copy].view(torch.uint8)
            return mm_fp4(
                codes,
                operands.codes[copy].T,
                scale,
                weight_scale.T,
                operands.one,
                torch.bfloat16,
                backend=name,
            )

        return call

    return prepare


def _marlin(operands: Operands) -> Call:
    try:
        from sglang.srt.layers.quantization.marlin_utils_fp4 import (
            apply_fp4_marlin_linear,
            prepare_nvfp4_layer_for_marlin,
        )
    except ImportError as error:
        raise Unavailable(f"Marlin: {error}") from error
    n, k = operands.weights[0].shape
    layers = []
    for codes, scale in zip(operands.codes, operands.scales, strict=True):
        layer: Any = torch.nn.Module()
        plain = kernels.unswizzle_scales(scale, n, k)
        layer.weight = torch.nn.Parameter(codes, requires_grad=False)
        layer.weight_scale = torch.nn.Parameter(plain, requires_grad=False)
        layer.weight_global_scale = torch.nn.Parameter(
            operands.one.clone(), requires_grad=False
        )
        layer.input_size_per_partition = k
        layer.output_size_per_partition = n
        layer.params_dtype = torch.bfloat16
        prepare_nvfp4_layer_for_marlin(layer)
        layers.append(layer)

    def call(copy: int) -> torch.Tensor:
        layer = layers[copy]
        return apply_fp4_marlin_linear(
            input=operands.x,
            weight=layer.weight,
            weight_scale=layer.weight_scale,
            weight_global_scale=layer.weight_global_scale,
            workspace=layer.workspace,
            size_n=n,
            size_k=k,
        )

    return call


DENSE = (
    Backend("cublas bf16", _cublas, 16, 16),
    Backend("triton w4a4", _ours, 4, 4),
    Backend("triton quantise + w4a4", _ours_with_quantisation, 4, 16),
    Backend("triton w4a16", _ours_half, 4, 16),
    *(
        Backend(f"flashinfer {name}", _flashinfer(name), 4, 4)
        for name in ("cutlass", "cudnn", "b12x", "cute-dsl")
    ),
    Backend("marlin w4a16", _marlin, 4, 16),
)
HEAD = (
    Backend("cublas bf16", _cublas, 16, 16),
    Backend("triton w4a4 arg-max", _ours_head, 4, 4),
)


def backends_of(problem: Problem) -> tuple[Backend, ...]:
    return HEAD if problem.layer == "lm_head" else DENSE
