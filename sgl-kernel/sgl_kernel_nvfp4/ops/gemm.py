"""Dense GEMM ops."""

from __future__ import annotations

import torch

from sgl_kernel_nvfp4 import checks, launches, reference
from sgl_kernel_nvfp4.policy import choose_gemm, current_device
from sgl_kernel_nvfp4.workspace import workspace

OUT_TYPES = (torch.bfloat16, torch.float16, torch.float32)


def check_operands(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    alpha: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Operands of a W4A4 product as the kernels need them: a [M, K/2], b [N, K/2]."""
    checks.same_device("gemm", a, a_scale, b, b_scale, alpha)
    a = checks.codes(a.reshape(-1, a.shape[-1]), "a")
    b = checks.codes(b, "b")
    checks.require(
        b.dim() == 2 and a.shape[1] == b.shape[1],
        f"a {list(a.shape)} and b {list(b.shape)} must be [M, K/2] and [N, K/2]",
    )
    k = a.shape[1] * 2
    checks.rows(b, "b")
    return (
        a,
        checks.swizzled_scale(a_scale, "a_scale", a.shape[0], k),
        b,
        checks.swizzled_scale(b_scale, "b_scale", b.shape[0], k),
        checks.factor(alpha, "alpha"),
    )


def check_out_type(out_dtype: torch.dtype) -> None:
    checks.require(
        out_dtype in OUT_TYPES,
        f"out_dtype must be one of {[str(t) for t in OUT_TYPES]}, got {out_dtype}",
    )


@torch.library.custom_op("sgl_kernel_nvfp4::gemm", mutates_args=(), device_types="cuda")
def gemm(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    alpha: torch.Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:
    """alpha * a @ b.T of two NVFP4 matrices: [..., N] in out_dtype.

    a: uint8 codes [..., K/2]; b: uint8 codes [N, K/2]; N and K multiples of 16. Tails
    of a tile are masked. Rows that are no multiple of 16 bytes (K % 32 == 16) are
    copied into padded ones; ``pad_codes`` does that to a weight once. a_scale, b_scale:
    float8_e4m3fn (or uint8) block scales in the 128x4 layout, [round_up(rows, 128),
    round_up(K/16, 4)], zero beyond K/16. alpha: float32, one element: the product of
    the two float32 scales. Accumulates in float32; the same input gives the same bits
    on every run. Raises ValueError for any other shape, type or layout.
    """
    check_out_type(out_dtype)
    lead = a.shape[:-1]
    a, a_scale, b, b_scale, alpha = check_operands(a, a_scale, b, b_scale, alpha)
    m, n, k = a.shape[0], b.shape[0], a.shape[1] * 2
    out = a.new_empty((m, n), dtype=out_dtype)
    if m and n:
        config = choose_gemm("w4a4_gemm", m, n, k, current_device(a.device))
        scratch = workspace(
            a.device,
            launches.partial_floats(m, n, config),
            launches.gemm_tiles(m, n, config) if config.split_k > 1 else 1,
        )
        launches.w4a4_gemm(a, a_scale, b, b_scale, alpha, out, k, config, scratch).run()
    return out.reshape(*lead, n)


@gemm.register_kernel("cpu")
def _(a, a_scale, b, b_scale, alpha, out_dtype=torch.bfloat16):
    check_out_type(out_dtype)
    lead = a.shape[:-1]
    a, a_scale, b, b_scale, alpha = check_operands(a, a_scale, b, b_scale, alpha)
    k = a.shape[1] * 2
    out = reference.gemm(a, a_scale, b, b_scale, alpha, k, torch.float32)
    return out.to(out_dtype).reshape(*lead, b.shape[0])


@gemm.register_fake
def _(a, a_scale, b, b_scale, alpha, out_dtype=torch.bfloat16):
    return a.new_empty((*a.shape[:-1], b.shape[0]), dtype=out_dtype)


@torch.library.custom_op(
    "sgl_kernel_nvfp4::w4a16_gemm", mutates_args=(), device_types="cuda"
)
def w4a16_gemm(
    x: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, alpha: torch.Tensor
) -> torch.Tensor:
    """alpha * x @ b.T for float16 or bfloat16 x [..., K]: [..., N] in the type of x.

    b, b_scale, alpha as in ``gemm``; alpha is the float32 scale of the weight alone.
    The activations enter the tensor cores as they are. Made for M up to 64; more rows
    work.
    """
    lead, k = x.shape[:-1], x.shape[-1]
    rows, b, b_scale, alpha = _check_w4a16(x, b, b_scale, alpha)
    m, n = rows.shape[0], b.shape[0]
    out = rows.new_empty((m, n))
    if m and n:
        config = choose_gemm("w4a16_gemm", m, n, k, current_device(x.device))
        scratch = workspace(
            x.device,
            launches.partial_floats(m, n, config),
            launches.gemm_tiles(m, n, config) if config.split_k > 1 else 1,
        )
        launches.w4a16_gemm(rows, b, b_scale, alpha, out, config, scratch).run()
    return out.reshape(*lead, n)


def _check_w4a16(
    x: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, alpha: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    checks.same_device("w4a16_gemm", x, b, b_scale, alpha)
    rows = checks.values(x, "x")
    b = checks.codes(b, "b")
    k = rows.shape[1]
    checks.require(
        b.dim() == 2 and b.shape[1] == -(-k // 32) * 16,
        f"x [M, {k}] needs b [N, {k // 2}], got {list(b.shape)}",
    )
    checks.rows(b, "b")
    b_scale = checks.swizzled_scale(b_scale, "b_scale", b.shape[0], k)
    return rows, b, b_scale, checks.factor(alpha, "alpha")


@w4a16_gemm.register_kernel("cpu")
def _(x, b, b_scale, alpha):
    rows, b, b_scale, alpha = _check_w4a16(x, b, b_scale, alpha)
    out = reference.w4a16_gemm(rows, b, b_scale, alpha, torch.float32)
    return out.to(x.dtype).reshape(*x.shape[:-1], b.shape[0])


@w4a16_gemm.register_fake
def _(x, b, b_scale, alpha):
    return x.new_empty((*x.shape[:-1], b.shape[0]))
