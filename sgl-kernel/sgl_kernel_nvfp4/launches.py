"""Kernel launches from tensors that are already checked, laid out and sized."""

from __future__ import annotations

import torch

from sgl_kernel_nvfp4.config import GemmConfig, QuantizeConfig
from sgl_kernel_nvfp4.formats import BLOCK, round_up
from sgl_kernel_nvfp4.kernels import gemm, head, moe, quantize, rmsnorm, w4a16
from sgl_kernel_nvfp4.launch import Launch
from sgl_kernel_nvfp4.workspace import Workspace


def ceil_div(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _gemm_constants(config: GemmConfig, k: int) -> dict[str, object]:
    return {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "EVEN_K": config.even_k(k),
        "STAGES": config.num_stages,
    }


def gemm_tiles(m: int, n: int, config: GemmConfig) -> int:
    return ceil_div(m, config.block_m) * ceil_div(n, config.block_n)


def partial_floats(m: int, n: int, config: GemmConfig) -> int:
    """float32 elements of workspace that a split needs."""
    if config.split_k == 1:
        return 0
    tiles = gemm_tiles(m, n, config)
    return config.split_k * tiles * config.block_m * config.block_n


def w4a4_gemm(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    alpha: torch.Tensor,
    out: torch.Tensor,
    k: int,
    config: GemmConfig,
    workspace: Workspace,
) -> Launch:
    m, n = out.shape
    return Launch(
        kernel=gemm.w4a4_gemm,
        grid=(gemm_tiles(m, n, config), config.split_k),
        arguments={
            "a_ptr": a,
            "a_scale_ptr": a_scale,
            "b_ptr": b,
            "b_scale_ptr": b_scale,
            "alpha_ptr": alpha,
            "out_ptr": out,
            "partial_ptr": workspace.partial,
            "arrived_ptr": workspace.arrived,
            "m_size": m,
            "n_blocks": n // BLOCK,
            "k_blocks": k // BLOCK,
            "a_units": a.stride(0) // 16,
            "b_units": b.stride(0) // 16,
            "out_units": out.stride(0) // 16,
        },
        constants=_gemm_constants(config, k)
        | {
            "SPLIT_K": config.split_k,
            "GROUP_M": config.group_m,
            "NATIVE": config.native,
        },
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        writes=frozenset(("out_ptr", "partial_ptr")),
    )


def w4a16_gemm(
    x: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    alpha: torch.Tensor,
    out: torch.Tensor,
    config: GemmConfig,
    workspace: Workspace,
) -> Launch:
    m, n = out.shape
    k = x.shape[1]
    return Launch(
        kernel=w4a16.w4a16_gemm,
        grid=(gemm_tiles(m, n, config), config.split_k),
        arguments={
            "x_ptr": x,
            "b_ptr": b,
            "b_scale_ptr": b_scale,
            "alpha_ptr": alpha,
            "out_ptr": out,
            "partial_ptr": workspace.partial,
            "arrived_ptr": workspace.arrived,
            "m_size": m,
            "n_blocks": n // BLOCK,
            "k_blocks": k // BLOCK,
            "x_units": x.stride(0) // 8,
            "b_units": b.stride(0) // 16,
            "out_units": out.stride(0) // 16,
        },
        constants=_gemm_constants(config, k)
        | {"SPLIT_K": config.split_k, "GROUP_M": config.group_m},
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        writes=frozenset(("out_ptr", "partial_ptr")),
    )


def w4a4_argmax(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    alpha: torch.Tensor,
    index: torch.Tensor,
    value: torch.Tensor,
    k: int,
    first_index: int,
    config: GemmConfig,
    workspace: Workspace,
) -> Launch:
    m, n = a.shape[0], b.shape[0]
    return Launch(
        kernel=head.w4a4_argmax,
        grid=(ceil_div(n, config.block_n), ceil_div(m, config.block_m)),
        arguments={
            "a_ptr": a,
            "a_scale_ptr": a_scale,
            "b_ptr": b,
            "b_scale_ptr": b_scale,
            "alpha_ptr": alpha,
            "index_ptr": index,
            "value_ptr": value,
            "best_ptr": workspace.best,
            "arrived_ptr": workspace.arrived,
            "m_size": m,
            "n_size": n,
            "k_blocks": k // BLOCK,
            "a_units": a.stride(0) // 16,
            "b_units": b.stride(0) // 16,
            "first_index": first_index,
        },
        constants=_gemm_constants(config, k) | {"NATIVE": config.native},
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        writes=frozenset(("index_ptr", "value_ptr")),
    )


def w4a4_grouped_gemm(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    alpha: torch.Tensor,
    out: torch.Tensor,
    pair_weight: torch.Tensor | None,
    sorted_token_ids: torch.Tensor,
    expert_ids: torch.Tensor,
    num_tokens_post_padded: torch.Tensor,
    pairs_per_row: int,
    k: int,
    config: GemmConfig,
) -> Launch:
    pairs, n = out.shape
    blocks = ceil_div(sorted_token_ids.shape[0], config.block_m)
    return Launch(
        kernel=moe.w4a4_grouped_gemm,
        grid=(ceil_div(n, config.block_n), min(blocks, expert_ids.shape[0])),
        arguments={
            "a_ptr": a,
            "a_scale_ptr": a_scale,
            "b_ptr": b,
            "b_scale_ptr": b_scale,
            "alpha_ptr": alpha,
            "out_ptr": out,
            "pair_weight_ptr": alpha if pair_weight is None else pair_weight,
            "sorted_token_ids_ptr": sorted_token_ids,
            "expert_ids_ptr": expert_ids,
            "num_tokens_post_padded_ptr": num_tokens_post_padded,
            "pair_count": pairs,
            "n_blocks": n // BLOCK,
            "k_blocks": k // BLOCK,
            "a_units": a.stride(0) // 16,
            "b_units": b.stride(1) // 16,
            "b_expert_units": b.stride(0) // 16,
            "scale_expert_units": b_scale.stride(0) // 512,
            "out_units": out.stride(0) // 16,
        },
        constants=_gemm_constants(config, k)
        | {
            "PAIRS_PER_ROW": pairs_per_row,
            "WEIGHTED": pair_weight is not None,
            "NATIVE": config.native,
        },
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        writes=frozenset(("out_ptr",)),
    )


def combine_pairs(
    pairs: torch.Tensor, out: torch.Tensor, top_k: int, factor: float
) -> Launch:
    tokens, n = out.shape
    block_n = 512
    return Launch(
        kernel=moe.combine_pairs,
        grid=(tokens, ceil_div(n, block_n)),
        arguments={
            "pair_ptr": pairs,
            "out_ptr": out,
            "n_blocks": n // BLOCK,
            "pair_units": pairs.stride(0) // 8,
            "out_units": out.stride(0) // 8,
            "factor": float(factor),
        },
        constants={"TOP_K": top_k, "BLOCK_N": block_n},
        num_warps=4,
        writes=frozenset(("out_ptr",)),
    )


def _scale_stride(k: int, swizzled: bool) -> int:
    return ceil_div(k, 64) if swizzled else k // BLOCK


def quantize_rows(
    x: torch.Tensor,
    global_scale: torch.Tensor,
    expert: torch.Tensor | None,
    codes: torch.Tensor,
    scale: torch.Tensor,
    k: int,
    gated: bool,
    gate_first: bool,
    swizzled: bool,
    config: QuantizeConfig,
) -> Launch:
    m = x.shape[0]
    # Whole tiles of codes and scales, so that padding is written too.
    columns = round_up(k, 64) if swizzled else round_up(k, 32)
    return Launch(
        kernel=quantize.quantize,
        grid=(ceil_div(m, config.rows), ceil_div(columns, config.block_k)),
        arguments={
            "x_ptr": x,
            "global_scale_ptr": global_scale,
            "expert_ptr": global_scale if expert is None else expert,
            "code_ptr": codes,
            "scale_ptr": scale,
            "m_size": m,
            "k_blocks": k // BLOCK,
            "x_units": x.stride(0) // 8,
            "code_units": codes.stride(0) // 16,
            "scale_stride": _scale_stride(k, swizzled),
        },
        constants={
            "ROWS": config.rows,
            "BLOCK_K": config.block_k,
            "GATED": gated,
            "GATE_FIRST": gate_first,
            "PER_EXPERT": expert is not None,
            "SWIZZLED": swizzled,
            "NATIVE": config.native,
        },
        num_warps=config.num_warps,
        writes=frozenset(("code_ptr", "scale_ptr")),
    )


def rmsnorm_quantize(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    global_scale: torch.Tensor,
    codes: torch.Tensor,
    scale: torch.Tensor,
    epsilon: float,
    weight_offset: float,
    swizzled: bool,
    config: QuantizeConfig,
) -> Launch:
    m, k = x.shape
    other = x if residual is None else residual
    return Launch(
        kernel=rmsnorm.rmsnorm_quantize,
        grid=(m,),
        arguments={
            "x_ptr": x,
            "residual_ptr": other,
            "weight_ptr": weight,
            "global_scale_ptr": global_scale,
            "code_ptr": codes,
            "scale_ptr": scale,
            "m_size": m,
            "k_blocks": k // BLOCK,
            "x_units": x.stride(0) // 8,
            "residual_units": other.stride(0) // 8,
            "code_units": codes.stride(0) // 16,
            "scale_stride": _scale_stride(k, swizzled),
            "epsilon": float(epsilon),
            "weight_offset": float(weight_offset),
        },
        constants={
            "BLOCK_K": config.block_k,
            "RESIDUAL": residual is not None,
            "SWIZZLED": swizzled,
            "NATIVE": config.native,
        },
        num_warps=config.num_warps,
        writes=frozenset(("code_ptr", "scale_ptr")),
    )
