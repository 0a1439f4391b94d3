"""NVFP4 linear layers on the Triton kernels of sgl_kernel_nvfp4.

On the CPU the same layers run in PyTorch, in float32 as well.
"""

from __future__ import annotations

from typing import Optional

import torch
from sgl_kernel_nvfp4 import gemm, pad_codes, quantize
from sgl_kernel_nvfp4 import reference as cpu
from sgl_kernel_nvfp4 import swizzle_scales, w4a16_gemm
from torch import nn

from sglang.srt.layers.utils.common import (
    alias_or_bind_derived_param,
    copy_or_rebind_param,
)

ROW_ALIGNMENT = 16
"""The kernels take weights of a multiple of 16 rows."""


def prepare_nvfp4_linear(
    layer: nn.Module,
    weight_scale_2: torch.Tensor,
    input_scale: Optional[torch.Tensor] = None,
) -> None:
    """Bring the loaded weight of ``layer`` into the layout of the kernels.

    Args:
        layer: has ``weight``, uint8 [N, K / 2], ``weight_scale``, float8_e4m3fn
            [N, K / 16] in row-major order, and ``logical_widths``, the rows of each
            fused projection.
        weight_scale_2: float32 [projections], the scale of each projection.
        input_scale: float32, one element, by which activations are divided before they
            are quantised; None keeps them as they are (W4A16).

    Sets ``weight``, ``weight_scale_interleaved``, ``alpha``, ``input_scale_inv`` and
    ``output_scale``, float32 [N], where the projections have scales of their own.
    """
    num_rows = layer.weight.shape[0]
    layer.output_size_per_partition = num_rows
    padding = (0, 0, 0, -num_rows % ROW_ALIGNMENT)
    weight = nn.functional.pad(layer.weight.data, padding)
    copy_or_rebind_param(layer, "weight", pad_codes(weight))
    alias_or_bind_derived_param(
        layer,
        "weight_scale",
        "weight_scale_interleaved",
        swizzle_scales(layer.weight_scale.data),
    )

    shared_scale = weight_scale_2.max().to(torch.float32)
    layer.output_scale = _output_scale(layer, weight_scale_2 / shared_scale)
    if input_scale is None:
        layer.input_scale_inv = None
        copy_or_rebind_param(layer, "alpha", shared_scale)
    else:
        input_scale = input_scale.to(torch.float32)
        copy_or_rebind_param(layer, "input_scale_inv", 1 / input_scale)
        copy_or_rebind_param(layer, "alpha", input_scale * shared_scale)


def apply_nvfp4_linear(
    layer: nn.Module, x: torch.Tensor, bias: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """x [..., K] times the weight of a prepared layer: [..., N] in the type of x."""
    weight, scale = layer.weight, layer.weight_scale_interleaved
    if layer.input_scale_inv is None:
        out = _weight_only_gemm(x, weight, scale, layer.alpha)
    else:
        codes, block_scale = _quantize(x, layer.input_scale_inv)
        out = gemm(codes, block_scale, weight, scale, layer.alpha, x.dtype)
    if out.shape[-1] != layer.output_size_per_partition:
        out = out[..., : layer.output_size_per_partition]
    if layer.output_scale is not None:
        out = (out * layer.output_scale).to(x.dtype)
    return out if bias is None else out + bias


def _output_scale(layer: nn.Module, ratios: torch.Tensor) -> Optional[torch.Tensor]:
    """What is left of the scales of fused projections after the greatest of them."""
    # A tensor that is stored fused fills the scale of the first projection only.
    ratios = torch.where(ratios > 0, ratios, 1.0)
    if torch.all(ratios == 1):
        return None
    widths = torch.tensor(layer.logical_widths, device=ratios.device)
    return ratios.repeat_interleave(widths)


def _quantize(
    x: torch.Tensor, input_scale_inv: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    if x.device.type != "cpu":
        return quantize(x, input_scale_inv)
    codes, scale = cpu.quantize(x.reshape(-1, x.shape[-1]), input_scale_inv)
    return codes.reshape(*x.shape[:-1], codes.shape[-1]), scale


def _weight_only_gemm(
    x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, alpha: torch.Tensor
) -> torch.Tensor:
    if x.device.type != "cpu":
        return w4a16_gemm(x, weight, scale, alpha)
    rows = x.reshape(-1, x.shape[-1])
    out = cpu.w4a16_gemm(rows, weight, scale, alpha, torch.float32)
    return out.to(x.dtype).reshape(*x.shape[:-1], out.shape[-1])
