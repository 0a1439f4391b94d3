"""The proposal head op."""

from __future__ import annotations

import torch

from sgl_kernel_nvfp4 import checks, launches, reference
from sgl_kernel_nvfp4.ops.gemm import check_operands
from sgl_kernel_nvfp4.policy import choose_gemm, current_device
from sgl_kernel_nvfp4.workspace import workspace


@torch.library.custom_op(
    "sgl_kernel_nvfp4::argmax_head", mutates_args=(), device_types="cuda"
)
def argmax_head(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    alpha: torch.Tensor,
    first_index: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(int64 [M], float32 [M]): first_index + arg-max of the logits, and the maximum.

    Arguments as in ``gemm``, with b the lm_head, [vocabulary, K/2]. The logits are
    float32 and never stored. Ties go to the lower index and NaN counts as the greatest,
    as in ``torch.argmax``. first_index: where this rank's part of the vocabulary
    begins; ranks combine their pairs by the greatest value, then the lowest index. Made
    for M up to 64; every further 64 rows read b once more.
    """
    a, a_scale, b, b_scale, alpha = check_operands(a, a_scale, b, b_scale, alpha)
    m, n, k = a.shape[0], b.shape[0], a.shape[1] * 2
    index = a.new_empty(m, dtype=torch.int64)
    value = a.new_empty(m, dtype=torch.float32)
    checks.require(n > 0, "b has no rows: no vocabulary to take the maximum of")
    if m:
        config = choose_gemm("w4a4_argmax", min(m, 64), n, k, current_device(a.device))
        scratch = workspace(
            a.device, tiles=launches.ceil_div(m, config.block_m), rows=m
        )
        launches.w4a4_argmax(
            a,
            a_scale,
            b,
            b_scale,
            alpha,
            index,
            value,
            k,
            first_index,
            config,
            scratch,
        ).run()
    return index, value


@argmax_head.register_kernel("cpu")
def _(a, a_scale, b, b_scale, alpha, first_index=0):
    a, a_scale, b, b_scale, alpha = check_operands(a, a_scale, b, b_scale, alpha)
    return reference.argmax_head(
        a, a_scale, b, b_scale, alpha, a.shape[1] * 2, first_index, torch.float32
    )


@argmax_head.register_fake
def _(a, a_scale, b, b_scale, alpha, first_index=0):
    m = a.numel() // a.shape[-1]
    return a.new_empty(m, dtype=torch.int64), a.new_empty(m, dtype=torch.float32)
