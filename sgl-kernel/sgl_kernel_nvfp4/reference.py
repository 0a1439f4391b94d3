"""Every operation in plain PyTorch: the judge of the kernels, and the CPU path.

``dtype`` is the type of the arithmetic: float64 to judge, float32 to serve.
"""

from __future__ import annotations

import torch

from sgl_kernel_nvfp4.formats import (
    BLOCK,
    E2M1_MAX,
    E4M3_MAX,
    decode_e2m1,
    encode_e2m1,
    pack_codes,
    pad_codes,
    swizzle_scales,
    unpack_codes,
    unswizzle_scales,
)


def quantize_linear(
    x: torch.Tensor, global_scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes uint8 [M, K/2] and row-major scales float8_e4m3fn [M, K/16] of x [M, K].

    global_scale: float32 scalar or [M, 1], the factor by which x is multiplied first;
    SGLang calls it ``input_scale_inv``.
    """
    scale = block_scales(x, global_scale)
    return pack_codes(block_codes(x, global_scale, scale)), scale


def block_scales(x: torch.Tensor, global_scale: torch.Tensor) -> torch.Tensor:
    """float8_e4m3fn [M, K/16]: global_scale * amax / 6 of each block, at most 448."""
    amax = x.double().reshape(x.shape[0], x.shape[1] // BLOCK, BLOCK).abs().amax(-1)
    scale = amax * global_scale.double().reshape(-1, 1) / E2M1_MAX
    return scale.clamp(max=E4M3_MAX).float().to(torch.float8_e4m3fn)


def block_codes(
    x: torch.Tensor, global_scale: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """Unpacked codes [M, K] of x * global_scale / scale; 0 where the scale is 0."""
    blocks = x.double().reshape(*scale.shape, BLOCK)
    factor = global_scale.double().reshape(-1, 1, 1)
    divisor = scale.double()[..., None]
    scaled = blocks * factor / torch.where(divisor == 0, 1.0, divisor)
    scaled = torch.where(divisor == 0, blocks * 0, scaled)
    return encode_e2m1(scaled).reshape(x.shape)


def quantize(
    x: torch.Tensor, global_scale: torch.Tensor, swizzled: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """``sgl_kernel_nvfp4.quantize`` for x [M, K]."""
    codes, scale = quantize_linear(x, global_scale)
    return pad_codes(codes), swizzle_scales(scale) if swizzled else scale


def silu_and_mul(x: torch.Tensor, gate_first: bool = True) -> torch.Tensor:
    """silu(gate) * up of x [M, 2 K], rounded to the type of x."""
    first, second = x.double().chunk(2, dim=-1)
    gate, up = (first, second) if gate_first else (second, first)
    return (torch.nn.functional.silu(gate) * up).to(x.dtype)


def rmsnorm(
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    residual: torch.Tensor | None = None,
    weight_offset: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(normed row, x + residual), both rounded to the type of x."""
    value = x.double() if residual is None else x.double() + residual.double()
    scale = torch.rsqrt(value.square().mean(-1, keepdim=True) + epsilon)
    normed = (value * scale * (weight.double() + weight_offset)).to(x.dtype)
    return normed, None if residual is None else value.to(x.dtype)


def dequantize_linear(
    codes: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """Values [..., R, K] of codes [..., R, K/2] and row-major scales [..., R, K/16]."""
    values = decode_e2m1(unpack_codes(codes), dtype)
    return values * scale.to(dtype).repeat_interleave(BLOCK, dim=-1)


def dequantize(
    codes: torch.Tensor,
    scale: torch.Tensor,
    k: int,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Values [..., R, k] of codes, perhaps padded, and swizzled scales.

    The float32 scale of the tensor is not applied.
    """
    codes = codes[..., : k // 2]
    scale = unswizzle_scales(scale.view(torch.float8_e4m3fn), codes.shape[-2], k)
    return dequantize_linear(codes, scale, dtype)


def fake_quantize(x: torch.Tensor, global_scale: torch.Tensor) -> torch.Tensor:
    """x [M, K] as NVFP4 keeps it: float32, with the global scale divided out."""
    values = dequantize_linear(*quantize_linear(x, global_scale))
    return (values / global_scale.double().reshape(-1, 1)).float()


def gemm(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    alpha: torch.Tensor,
    k: int,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """alpha * a @ b.T, ``dtype`` [M, N]; arguments as ``sgl_kernel_nvfp4.gemm``."""
    a_value = dequantize(a, a_scale, k, dtype)
    b_value = dequantize(b, b_scale, k, dtype)
    return (a_value @ b_value.T) * alpha.to(dtype)


def w4a16_gemm(
    x: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    alpha: torch.Tensor,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """alpha * x @ b.T for x [M, K] that is not quantised."""
    weight = dequantize(b, b_scale, x.shape[-1], dtype)
    return (x.to(dtype) @ weight.T) * alpha.to(dtype)


def argmax_head(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    alpha: torch.Tensor,
    k: int,
    first_index: int = 0,
    dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(int64 [M], float32 [M]): where the greatest logit is, and how great."""
    logits = gemm(a, a_scale, b, b_scale, alpha, k, dtype)
    if not len(logits):
        return logits.new_empty(0, dtype=torch.int64), logits.new_empty(0).float()
    index = logits.argmax(-1)
    value = logits.gather(-1, index[:, None])[:, 0]
    return index + first_index, value.float()


def align_tokens(
    topk_ids: torch.Tensor, block_size: int, num_experts: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """SGLang's sorted-token layout for topk_ids [tokens, top_k].

    Returns (sorted_token_ids, expert_ids, num_tokens_post_padded), all int32: pairs
    ordered by expert, each expert padded to block_size with the number of pairs, and
    the expert of each block. Pairs of expert -1 come first, in blocks of expert -1.
    """
    flat = topk_ids.flatten()
    padding = flat.numel()
    pairs: list[int] = []
    experts: list[int] = []
    for expert in range(-1, num_experts):
        mine = (flat == expert).nonzero().flatten().tolist()
        mine += [padding] * (-len(mine) % block_size)
        pairs += mine
        experts += [expert] * (len(mine) // block_size)

    def as_int(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=topk_ids.device)

    return as_int(pairs), as_int(experts), as_int([len(pairs)])


def grouped_gemm(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    alpha: torch.Tensor,
    topk_ids: torch.Tensor,
    k: int,
    pair_weight: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """[pairs, N]: row p is alpha[e] * a[row of p] @ b[e].T, e the expert of pair p.

    a has one row for each token or for each pair; expert -1 gives zeros.
    """
    flat = topk_ids.flatten().long()
    rows = dequantize(a, a_scale, k, dtype)
    rows = rows.repeat_interleave(len(flat) // max(len(rows), 1), dim=0)
    out = rows.new_zeros(len(flat), b.shape[1])
    for expert in flat.unique().tolist():
        if expert >= 0:
            mine = flat == expert
            weight = dequantize(b[expert], b_scale[expert], k, dtype)
            out[mine] = (rows[mine] @ weight.T) * alpha[expert].to(dtype)
    return out if pair_weight is None else out * pair_weight.reshape(-1, 1).to(dtype)


def quantize_rows_by_expert(
    x: torch.Tensor, global_scale: torch.Tensor, topk_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise pair rows x [pairs, K] with global_scale, a scalar or [experts]."""
    if global_scale.numel() > 1:
        flat = topk_ids.flatten().long()
        global_scale = torch.where(flat < 0, 1.0, global_scale[flat]).reshape(-1, 1)
    return quantize(x, global_scale)
