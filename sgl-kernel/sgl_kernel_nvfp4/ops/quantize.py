"""Quantisation ops. All take M >= 0 rows and K a multiple of 16.

Codes come back uint8 [..., round_up(K, 32) / 2], rows padded with zeros; scales
float8_e4m3fn, [round_up(M, 128), round_up(K / 16, 4)] swizzled, with zeros in the
padding columns and anything in the padding rows, or [M, K / 16] if not ``swizzled``.
"""

from __future__ import annotations

import torch

from sgl_kernel_nvfp4 import checks, launches, reference
from sgl_kernel_nvfp4.formats import BLOCK, CODE_ALIGNMENT, round_up, scale_shape
from sgl_kernel_nvfp4.policy import choose_quantize, current_device


def empty_quantized(
    x: torch.Tensor, shape: list[int], swizzled: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Uninitialised codes and scales of a matrix of ``shape``, on the device of x."""
    *lead, k = shape
    m = 1
    for size in lead:
        m *= size
    width = round_up(k, CODE_ALIGNMENT) // 2
    codes = x.new_empty((*lead, width), dtype=torch.uint8)
    scale = scale_shape(m, k) if swizzled else (m, k // BLOCK)
    return codes, x.new_empty(scale, dtype=torch.float8_e4m3fn)


def _check_global_scale(
    global_scale: torch.Tensor, expert_ids: torch.Tensor | None, rows: int
) -> torch.Tensor:
    if expert_ids is None:
        return checks.factor(global_scale, "global_scale")
    checks.require(
        expert_ids.dtype == torch.int32 and expert_ids.numel() == rows,
        f"expert_ids must be int32 with one expert for each of {rows} rows, got "
        f"{expert_ids.dtype} {list(expert_ids.shape)}",
    )
    return checks.factor(global_scale, "global_scale", global_scale.numel())


def _quantize_cuda(
    x: torch.Tensor,
    global_scale: torch.Tensor,
    expert_ids: torch.Tensor | None,
    gated: bool,
    gate_first: bool,
    swizzled: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    *lead, width = x.shape
    k = width // 2 if gated else width
    rows = checks.values(x, "x")
    global_scale = _check_global_scale(global_scale, expert_ids, rows.shape[0])
    codes, scale = empty_quantized(x, [*lead, k], swizzled)
    if rows.shape[0]:
        launches.quantize_rows(
            rows,
            global_scale,
            None if expert_ids is None else expert_ids.reshape(-1).contiguous(),
            codes.reshape(-1, codes.shape[-1]),
            scale,
            k,
            gated,
            gate_first,
            swizzled,
            choose_quantize(rows.shape[0], k, current_device(x.device)),
        ).run()
    return codes, scale


def _quantize_cpu(
    x: torch.Tensor,
    global_scale: torch.Tensor,
    expert_ids: torch.Tensor | None,
    swizzled: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = checks.values(x, "x")
    global_scale = _check_global_scale(global_scale, expert_ids, rows.shape[0])
    if expert_ids is not None:
        experts = expert_ids.reshape(-1).long()
        global_scale = torch.where(experts < 0, 1.0, global_scale[experts])
        global_scale = global_scale.reshape(-1, 1)
    codes, scale = reference.quantize(rows, global_scale, swizzled)
    return codes.reshape(*x.shape[:-1], codes.shape[-1]), scale


@torch.library.custom_op(
    "sgl_kernel_nvfp4::quantize", mutates_args=(), device_types="cuda"
)
def quantize(
    x: torch.Tensor, global_scale: torch.Tensor, swizzled: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of x [..., K], float16 or bfloat16.

    global_scale: float32, one element, the factor applied to x before the block scales,
    as in FlashInfer's ``fp4_quantize``; SGLang's ``layer.input_scale_inv``.
    scale = e4m3(min(global_scale * amax / 6, 448)), code = e2m1(x * global_scale /
    scale) with ties to even. Infinities saturate; a NaN makes its block's scale NaN.
    Raises ValueError for other types or K.
    """
    return _quantize_cuda(x, global_scale, None, False, True, swizzled)


@quantize.register_kernel("cpu")
def _(x, global_scale, swizzled=True):
    return _quantize_cpu(x, global_scale, None, swizzled)


@quantize.register_fake
def _(x, global_scale, swizzled=True):
    return empty_quantized(x, list(x.shape), swizzled)


@torch.library.custom_op(
    "sgl_kernel_nvfp4::silu_and_mul_quantize", mutates_args=(), device_types="cuda"
)
def silu_and_mul_quantize(
    x: torch.Tensor,
    global_scale: torch.Tensor,
    expert_ids: torch.Tensor | None = None,
    gate_first: bool = True,
    swizzled: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``quantize`` of silu(gate) * up, for x [..., 2 K] = [gate | up].

    gate_first=False reads x as [up | gate], the order in which SGLang loads MoE weights
    for its CUTLASS runners. The product is rounded to the type of x first.
    expert_ids: int32, one expert for each row, makes global_scale a float32 [experts];
    rows of expert -1 take 1.
    """
    checks.require(
        x.shape[-1] % (2 * BLOCK) == 0,
        f"x has {x.shape[-1]} columns; two halves that are multiples of {BLOCK} needed",
    )
    return _quantize_cuda(x, global_scale, expert_ids, True, gate_first, swizzled)


@silu_and_mul_quantize.register_kernel("cpu")
def _(x, global_scale, expert_ids=None, gate_first=True, swizzled=True):
    product = reference.silu_and_mul(x, gate_first)
    return _quantize_cpu(product, global_scale, expert_ids, swizzled)


@silu_and_mul_quantize.register_fake
def _(x, global_scale, expert_ids=None, gate_first=True, swizzled=True):
    return empty_quantized(x, [*x.shape[:-1], x.shape[-1] // 2], swizzled)


@torch.library.custom_op(
    "sgl_kernel_nvfp4::rmsnorm_quantize",
    mutates_args=("residual",),
    device_types="cuda",
)
def rmsnorm_quantize(
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    global_scale: torch.Tensor,
    residual: torch.Tensor | None = None,
    weight_offset: float = 0.0,
    swizzled: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``quantize`` of the RMSNorm of x [..., K], or of x + residual.

    weight: [K], the type of x. weight_offset: added to the weight; 1.0 for the Gemma
    style norms of Qwen3.5. residual: same shape and type as x; becomes x + residual.
    """
    _check_norm(x, weight, residual)
    rows = checks.values(x, "x")
    k = x.shape[-1]
    codes, scale = empty_quantized(x, list(x.shape), swizzled)
    if rows.shape[0]:
        launches.rmsnorm_quantize(
            rows,
            None if residual is None else residual.view(-1, k),
            weight.contiguous(),
            checks.factor(global_scale, "global_scale"),
            codes.reshape(-1, codes.shape[-1]),
            scale,
            epsilon,
            weight_offset,
            swizzled,
            choose_quantize(rows.shape[0], k, current_device(x.device)),
        ).run()
    return codes, scale


def _check_norm(
    x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None
) -> None:
    checks.require(
        weight.shape == x.shape[-1:] and weight.dtype == x.dtype,
        f"weight must be {x.dtype} [{x.shape[-1]}], got {weight.dtype} "
        f"{list(weight.shape)}",
    )
    if residual is not None:
        checks.require(
            residual.shape == x.shape
            and residual.dtype == x.dtype
            and residual.is_contiguous(),
            f"residual must be contiguous {x.dtype} {list(x.shape)}, got "
            f"{residual.dtype} {list(residual.shape)}",
        )


@rmsnorm_quantize.register_kernel("cpu")
def _(
    x,
    weight,
    epsilon,
    global_scale,
    residual=None,
    weight_offset=0.0,
    swizzled=True,
):
    _check_norm(x, weight, residual)
    normed, total = reference.rmsnorm(x, weight, epsilon, residual, weight_offset)
    if residual is not None:
        residual.copy_(total)
    return _quantize_cpu(normed, global_scale, None, swizzled)


@rmsnorm_quantize.register_fake
def _(
    x,
    weight,
    epsilon,
    global_scale,
    residual=None,
    weight_offset=0.0,
    swizzled=True,
):
    return empty_quantized(x, list(x.shape), swizzled)
