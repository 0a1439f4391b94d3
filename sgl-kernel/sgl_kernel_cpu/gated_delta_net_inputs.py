"""Inputs of a gated delta net layer: projections, gates, and heads of a state pool."""

import torch
import torch.nn.functional as F

from .delta_rule import Tokens
from .registry import kernel

L2_NORM_EPS = 1e-6


def _split_shapes(
    mixed_qkvz: torch.Tensor,
    mixed_ba: torch.Tensor,
    num_heads_qk: int,
    num_heads_v: int,
    head_qk: int,
    head_v: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    num_tokens = mixed_qkvz.shape[0]
    qkv_dim = 2 * num_heads_qk * head_qk + num_heads_v * head_v
    return (
        mixed_qkvz.new_empty((num_tokens, qkv_dim)),
        mixed_qkvz.new_empty((num_tokens, num_heads_v, head_v)),
        mixed_ba.new_empty((num_tokens, num_heads_v)),
        mixed_ba.new_empty((num_tokens, num_heads_v)),
    )


@kernel(
    "fused_qkvzba_split_reshape_cat_contiguous_cpu(Tensor mixed_qkvz, "
    "Tensor mixed_ba, int num_heads_qk, int num_heads_v, int head_qk, int head_v) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    fake=_split_shapes,
)
def fused_qkvzba_split_reshape_cat_contiguous_cpu(
    mixed_qkvz: torch.Tensor,
    mixed_ba: torch.Tensor,
    num_heads_qk: int,
    num_heads_v: int,
    head_qk: int,
    head_v: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split the projections into qkv, z, b and a, all contiguous.

    Args:
        mixed_qkvz: [num_tokens, q | k | v | z].
        mixed_ba: [num_tokens, b | a].

    Returns:
        [num_tokens, q | k | v], z [num_tokens, num_heads_v, head_v], b and a
        [num_tokens, num_heads_v].
    """
    z_dim = num_heads_v * head_v
    qkv, z = mixed_qkvz.split((mixed_qkvz.shape[1] - z_dim, z_dim), dim=-1)
    b, a = mixed_ba.split(num_heads_v, dim=-1)
    z = z.reshape(-1, num_heads_v, head_v).contiguous()
    return _copy(qkv), _copy(z), _copy(b), _copy(a)


def _copy(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def log_decay(
    A_log: torch.Tensor,
    a: torch.Tensor,
    dt_bias: torch.Tensor,
    softplus_beta: float = 1.0,
    softplus_threshold: float = 20.0,
) -> torch.Tensor:
    """Log decay of every token and head, float32 shaped like a."""
    shifted = a.float() + dt_bias.float()
    return F.softplus(shifted, softplus_beta, softplus_threshold) * -A_log.float().exp()


def _fake_gating(
    A_log: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dt_bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return a.new_empty((1, *a.shape), dtype=torch.float32), b.new_empty((1, *b.shape))


@kernel(
    "fused_gdn_gating_cpu(Tensor A_log, Tensor a, Tensor b, Tensor dt_bias) "
    "-> (Tensor, Tensor)",
    fake=_fake_gating,
)
def fused_gdn_gating_cpu(
    A_log: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dt_bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log decay -exp(A_log) softplus(a + dt_bias) and write strength sigmoid(b).

    Args:
        A_log: [num_heads].
        a: [num_tokens, num_heads].
        b: [num_tokens, num_heads].
        dt_bias: [num_heads].

    Returns:
        [1, num_tokens, num_heads] float32, and likewise in b's dtype.
    """
    return log_decay(A_log, a, dt_bias).unsqueeze(0), b.sigmoid().unsqueeze(0)


def _l2_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps)


def _repeat_heads(x: torch.Tensor, group: int) -> torch.Tensor:
    """[..., heads * group, dim] of [..., heads, dim], each head `group` times."""
    repeated = x.unsqueeze(-2).expand(*x.shape[:-1], group, x.shape[-1])
    return repeated.flatten(-3, -2)


def rule_tokens(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    l2_norm_eps: float | None,
) -> Tokens:
    """Inputs of the rule from [..., num_tokens, heads, dim] activations of any dtype.

    Key heads are repeated for the value heads that share them.
    """
    q, k = q.float(), k.float()
    if l2_norm_eps is not None:
        q, k = _l2_norm(q, l2_norm_eps), _l2_norm(k, l2_norm_eps)
    q = q * q.shape[-1] ** -0.5
    group = v.shape[-2] // q.shape[-2]
    if group > 1:
        q, k = _repeat_heads(q, group), _repeat_heads(k, group)
    return Tokens(
        query=q.transpose(-2, -3),
        key=k.transpose(-2, -3),
        value=v.float().transpose(-2, -3),
        decay=decay.float().transpose(-1, -2),
        beta=beta.float().transpose(-1, -2),
    )


def key_major(pool: torch.Tensor, key_dim: int, value_dim: int) -> torch.Tensor:
    """The pool as [..., key_dim, value_dim].

    SGLang names a state's dimensions [value_dim, key_dim] while its compiled kernel
    stores key rows. Where the two differ in size the shape tells; where they do not,
    the compiled kernel's order is kept.
    """
    if pool.shape[-2:] == (key_dim, value_dim):
        return pool
    return pool.transpose(-1, -2)
