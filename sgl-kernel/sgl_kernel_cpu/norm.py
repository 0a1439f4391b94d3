"""RMSNorm and LayerNorm. Every variant computes in float32 and rounds once."""

import torch
import torch.nn.functional as F

from .registry import kernel, like_first


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / rms(x) * weight over the last dimension; weight float32 [hidden_size]."""
    return F.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


@kernel(
    "rmsnorm_cpu(Tensor input, Tensor weight, float eps) -> Tensor", fake=like_first
)
def rmsnorm_cpu(input: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm of input [..., hidden_size]."""
    return _rms_norm(input, weight.float(), eps)


@kernel(
    "gemma_rmsnorm_cpu(Tensor input, Tensor weight, float eps) -> Tensor",
    fake=like_first,
)
def gemma_rmsnorm_cpu(
    input: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """RMSNorm of input [..., hidden_size] scaled by 1 + weight."""
    return _rms_norm(input, weight.float() + 1, eps)


@kernel(
    "fused_add_rmsnorm_cpu(Tensor(a!) input, Tensor(b!) residual, Tensor weight, "
    "float eps) -> ()"
)
def fused_add_rmsnorm_cpu(
    input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> None:
    """residual += input, then input = rmsnorm(residual), both in place."""
    residual.add_(input)
    input.copy_(rmsnorm_cpu(residual, weight, eps))


@kernel(
    "gemma_fused_add_rmsnorm_cpu(Tensor(a!) input, Tensor(b!) residual, "
    "Tensor weight, float eps) -> ()"
)
def gemma_fused_add_rmsnorm_cpu(
    input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> None:
    """residual += input, then input = gemma_rmsnorm(residual), both in place."""
    residual.add_(input)
    input.copy_(gemma_rmsnorm_cpu(residual, weight, eps))


@kernel(
    "fused_rmsnorm_gated_cpu(Tensor input, Tensor weight, Tensor gate, float eps) "
    "-> Tensor",
    fake=like_first,
)
def fused_rmsnorm_gated_cpu(
    input: torch.Tensor, weight: torch.Tensor, gate: torch.Tensor, eps: float
) -> torch.Tensor:
    """rmsnorm(input) * silu(gate), input [..., head_dim], gate of as many elements."""
    normed = F.rms_norm(input.float(), weight.shape, weight.float(), eps)
    return (normed * F.silu(gate.reshape(input.shape).float())).to(input.dtype)


@kernel(
    "layernorm_cpu(Tensor input, Tensor weight, Tensor? bias, float eps) -> Tensor",
    fake=like_first,
)
def layernorm_cpu(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float
) -> torch.Tensor:
    """LayerNorm of input [..., hidden_size]."""
    bias = None if bias is None else bias.float()
    normed = F.layer_norm(input.float(), weight.shape, weight.float(), bias, eps)
    return normed.to(input.dtype)


def _fake_qk_norm(
    q: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    eps: float,
    head_dim: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    return like_first(q), like_first(k)


@kernel(
    "fused_qk_gemma_rmsnorm_cpu(Tensor q, Tensor k, Tensor q_weight, Tensor k_weight, "
    "float eps, int head_dim) -> (Tensor, Tensor)",
    fake=_fake_qk_norm,
)
def fused_qk_gemma_rmsnorm_cpu(
    q: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    eps: float,
    head_dim: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """gemma_rmsnorm of every head of q and k.

    Args:
        q: [num_tokens, num_heads * head_dim].
        k: [num_tokens, num_kv_heads * head_dim].
        q_weight: [head_dim].
        k_weight: [head_dim].

    Returns:
        The normed q and k, contiguous, shaped like the arguments.
    """
    return (
        gemma_rmsnorm_cpu(q.reshape(-1, head_dim), q_weight, eps).view(q.shape),
        gemma_rmsnorm_cpu(k.reshape(-1, head_dim), k_weight, eps).view(k.shape),
    )


def _fake_qk_norm_with_gate(
    q_gate: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    eps: float,
    head_dim: int,
    num_heads: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    num_tokens = q_gate.shape[0]
    num_kv_heads = k.shape[1] // head_dim
    query = q_gate.new_empty((num_tokens * num_heads, head_dim))
    key = k.new_empty((num_tokens * num_kv_heads, head_dim))
    return query, key, torch.empty_like(query)


@kernel(
    "fused_qk_gemma_rmsnorm_with_gate_cpu(Tensor q_gate, Tensor k, Tensor q_weight, "
    "Tensor k_weight, float eps, int head_dim, int num_heads) "
    "-> (Tensor, Tensor, Tensor)",
    fake=_fake_qk_norm_with_gate,
)
def fused_qk_gemma_rmsnorm_with_gate_cpu(
    q_gate: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    eps: float,
    head_dim: int,
    num_heads: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split query and output gate, and gemma_rmsnorm every head of query and key.

    Args:
        q_gate: [num_tokens, num_heads * 2 * head_dim], per head [query | gate].
        k: [num_tokens, num_kv_heads * head_dim].
        q_weight: [head_dim].
        k_weight: [head_dim].

    Returns:
        Query, key and gate, contiguous, [num_tokens * heads, head_dim] each.
    """
    query, gate = q_gate.reshape(-1, 2 * head_dim).split(head_dim, dim=-1)
    return (
        gemma_rmsnorm_cpu(query, q_weight, eps),
        gemma_rmsnorm_cpu(k.reshape(-1, head_dim), k_weight, eps),
        gate.contiguous(),
    )
