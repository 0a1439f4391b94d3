"""Mixture-of-experts ops on SGLang's sorted-token layout.

``moe_align_block_size`` of SGLang makes that layout: sorted_token_ids, int32, numbers
of (token, choice) pairs ordered by expert and padded with the number of pairs to whole
blocks; expert_ids, int32, one for each block, -1 for experts of other ranks;
num_tokens_post_padded, int32 [1]. ``policy.moe_block_m`` gives the block size to use.
"""

from __future__ import annotations

import torch

from sgl_kernel_nvfp4 import checks, launches, reference
from sgl_kernel_nvfp4.ops.quantize import quantize, silu_and_mul_quantize
from sgl_kernel_nvfp4.policy import choose_gemm, current_device

_BLOCK_SIZES = (16, 32, 64)


@torch.library.custom_op(
    "sgl_kernel_nvfp4::grouped_gemm", mutates_args=(), device_types="cuda"
)
def grouped_gemm(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    alpha: torch.Tensor,
    topk_ids: torch.Tensor,
    sorted_token_ids: torch.Tensor,
    expert_ids: torch.Tensor,
    num_tokens_post_padded: torch.Tensor,
    block_m: int,
    pair_weight: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:
    """[pairs, N]: for pair p of expert e, alpha[e] * a[row of p] @ b[e].T.

    a: uint8 codes, [tokens, K/2] (pair p reads row p // top_k) or [pairs, K/2].
    a_scale: 128x4 scales of a. b: uint8 codes [experts, N, K/2]. b_scale: 128x4 scales
    [experts, round_up(N, 128), round_up(K/16, 4)]. alpha: float32 [experts].
    topk_ids: int32 or int64 [tokens, top_k]; the CPU reads the experts from it.
    pair_weight: float32 with one factor for each pair, or None.
    Pairs of expert -1 are zero. Raises ValueError for other shapes or types.
    """
    a, a_scale, b, b_scale, alpha, weight, rows_per_pair = _check_grouped(
        a, a_scale, b, b_scale, alpha, topk_ids, pair_weight
    )
    checks.require(
        block_m in _BLOCK_SIZES, f"block_m must be in {_BLOCK_SIZES}, got {block_m}"
    )
    for name, tensor in (
        ("sorted_token_ids", sorted_token_ids),
        ("expert_ids", expert_ids),
        ("num_tokens_post_padded", num_tokens_post_padded),
    ):
        checks.require(
            tensor.dtype == torch.int32 and tensor.is_contiguous(),
            f"{name} must be contiguous int32, got {tensor.dtype}",
        )
    pairs, n, k = topk_ids.numel(), b.shape[1], a.shape[1] * 2
    out = a.new_empty((pairs, n), dtype=out_dtype)
    if pairs and n:
        config = choose_gemm(
            "w4a4_grouped_gemm",
            pairs,
            n,
            k,
            current_device(a.device),
            block_m=block_m,
        )
        launches.w4a4_grouped_gemm(
            a,
            a_scale,
            b,
            b_scale,
            alpha,
            out,
            weight,
            sorted_token_ids,
            expert_ids,
            num_tokens_post_padded,
            rows_per_pair,
            k,
            config,
        ).run()
    return out


def _check_grouped(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    alpha: torch.Tensor,
    topk_ids: torch.Tensor,
    pair_weight: torch.Tensor | None,
) -> tuple[
    torch.Tensor,
    torch.Tensor,
    torch.Tensor,
    torch.Tensor,
    torch.Tensor,
    torch.Tensor | None,
    int,
]:
    checks.same_device("grouped_gemm", a, a_scale, b, b_scale, alpha, topk_ids)
    a, b = checks.codes(a, "a"), checks.codes(b, "b")
    checks.require(
        a.dim() == 2 and b.dim() == 3 and a.shape[1] == b.shape[2],
        f"a {list(a.shape)} and b {list(b.shape)} must be [rows, K/2] and "
        "[experts, N, K/2]",
    )
    checks.require(
        topk_ids.dim() == 2 and a.shape[0] in (topk_ids.shape[0], topk_ids.numel()),
        f"a has {a.shape[0]} rows; topk_ids {list(topk_ids.shape)} needs one for each "
        "token or one for each pair",
    )
    checks.rows(b, "b")
    experts, n, _ = b.shape
    k = a.shape[1] * 2
    per_token = a.shape[0] == topk_ids.shape[0]
    if pair_weight is not None:
        pair_weight = checks.factor(pair_weight, "pair_weight", topk_ids.numel())
    return (
        a,
        checks.swizzled_scale(a_scale, "a_scale", a.shape[0], k),
        b,
        checks.swizzled_scale(b_scale, "b_scale", n, k, (experts,)),
        checks.factor(alpha, "alpha", experts),
        pair_weight,
        topk_ids.shape[1] if per_token else 1,
    )


@grouped_gemm.register_kernel("cpu")
def _(
    a,
    a_scale,
    b,
    b_scale,
    alpha,
    topk_ids,
    sorted_token_ids,
    expert_ids,
    num_tokens_post_padded,
    block_m,
    pair_weight=None,
    out_dtype=torch.bfloat16,
):
    a, a_scale, b, b_scale, alpha, weight, _ = _check_grouped(
        a, a_scale, b, b_scale, alpha, topk_ids, pair_weight
    )
    return reference.grouped_gemm(
        a,
        a_scale,
        b,
        b_scale,
        alpha,
        topk_ids,
        a.shape[1] * 2,
        weight,
        torch.float32,
    ).to(out_dtype)


@grouped_gemm.register_fake
def _(
    a,
    a_scale,
    b,
    b_scale,
    alpha,
    topk_ids,
    sorted_token_ids,
    expert_ids,
    num_tokens_post_padded,
    block_m,
    pair_weight=None,
    out_dtype=torch.bfloat16,
):
    return a.new_empty((topk_ids.numel(), b.shape[1]), dtype=out_dtype)


@torch.library.custom_op(
    "sgl_kernel_nvfp4::combine", mutates_args=(), device_types="cuda"
)
def combine(pairs: torch.Tensor, top_k: int, factor: float = 1.0) -> torch.Tensor:
    """[tokens, N]: factor times the sum of each token's top_k rows of pairs, in order.

    pairs: [tokens * top_k, N], float16 or bfloat16, N a multiple of 16. Adds in
    float32.
    """
    rows = checks.values(pairs, "pairs")
    _check_top_k(rows, top_k)
    out = rows.new_empty((rows.shape[0] // top_k, rows.shape[1]))
    if out.numel():
        launches.combine_pairs(rows, out, top_k, factor).run()
    return out


def _check_top_k(rows: torch.Tensor, top_k: int) -> None:
    checks.require(
        top_k > 0 and rows.shape[0] % top_k == 0,
        f"{rows.shape[0]} rows of pairs are no multiple of top_k = {top_k}",
    )


@combine.register_kernel("cpu")
def _(pairs, top_k, factor=1.0):
    _check_top_k(pairs, top_k)
    total = pairs.float().reshape(-1, top_k, pairs.shape[-1]).sum(1) * factor
    return total.to(pairs.dtype)


@combine.register_fake
def _(pairs, top_k, factor=1.0):
    return pairs.new_empty((pairs.shape[0] // top_k, pairs.shape[1]))


def moe(
    x: torch.Tensor,
    w13: torch.Tensor,
    w13_scale: torch.Tensor,
    w13_alpha: torch.Tensor,
    w13_global_scale: torch.Tensor,
    w2: torch.Tensor,
    w2_scale: torch.Tensor,
    w2_alpha: torch.Tensor,
    w2_global_scale: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    sorted_token_ids: torch.Tensor,
    expert_ids: torch.Tensor,
    num_tokens_post_padded: torch.Tensor,
    block_m: int,
    gate_first: bool = False,
    routed_scaling_factor: float = 1.0,
) -> torch.Tensor:
    """The routed experts of one layer: [tokens, hidden] in the type of x.

    x: float16 or bfloat16 [tokens, hidden]. w13: codes [experts, 2 I, hidden/2], up
    rows first unless gate_first; w2: codes [experts, hidden, I/2]; scales as in
    ``grouped_gemm``. w13_alpha, w2_alpha: float32 [experts], SGLang's g1_alphas and
    g2_alphas. w13_global_scale: float32 [1], 1 / input scale. w2_global_scale: the same
    for the product, [1] or [experts]. topk_weights: float32 [tokens, top_k].
    """
    codes, scale = quantize(x, w13_global_scale)
    routing = (sorted_token_ids, expert_ids, num_tokens_post_padded, block_m)
    hidden = grouped_gemm(
        codes,
        scale,
        w13,
        w13_scale,
        w13_alpha,
        topk_ids,
        *routing,
        out_dtype=x.dtype,
    )
    experts = None
    if w2_global_scale.numel() > 1:
        experts = topk_ids.reshape(-1).to(torch.int32)
    codes, scale = silu_and_mul_quantize(hidden, w2_global_scale, experts, gate_first)
    pairs = grouped_gemm(
        codes,
        scale,
        w2,
        w2_scale,
        w2_alpha,
        topk_ids,
        *routing,
        pair_weight=topk_weights,
        out_dtype=x.dtype,
    )
    return combine(pairs, topk_ids.shape[1], routed_scaling_factor)
