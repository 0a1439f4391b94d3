"""Norm, MLP, mixture of experts, rotary positions and gated attention of Qwen3.5.

Everything computes in float32, or under `torch.autocast` with bfloat16 products.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tiny_qwen.architecture import Architecture

KeyValue = tuple[Tensor, Tensor]


class RMSNorm(nn.Module):
    """RMS norm whose scale is 1 + weight, so that a zero weight changes nothing."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        mean_square = x.square().mean(-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * (1 + self.weight)


class Mlp(nn.Module):
    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = linear(hidden_size, intermediate_size)
        self.up_proj = linear(hidden_size, intermediate_size)
        self.down_proj = linear(intermediate_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    """All experts of a layer: gate_up_proj [E, 2I, H] and down_proj [E, H, I]."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        experts, hidden = architecture.num_experts, architecture.hidden_size
        intermediate = architecture.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.zeros(experts, 2 * intermediate, hidden))
        self.down_proj = nn.Parameter(torch.zeros(experts, hidden, intermediate))

    def forward(self, x: Tensor) -> Tensor:
        """x [..., H] -> the output of every expert [..., E, H]."""
        projected = torch.einsum("...h,eih->...ei", x, self.gate_up_proj)
        gate, up = projected.chunk(2, -1)
        return torch.einsum("...ei,ehi->...eh", F.silu(gate) * up, self.down_proj)


class SparseMlp(nn.Module):
    """Mixture of experts with a shared expert; it runs every expert and weighs them."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        hidden = architecture.hidden_size
        self.top_k = architecture.num_experts_per_tok
        self.gate = linear(hidden, architecture.num_experts)
        self.experts = Experts(architecture)
        self.shared_expert = Mlp(hidden, architecture.shared_expert_intermediate_size)
        self.shared_expert_gate = linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        probabilities = self.gate(x).softmax(-1)
        best, chosen = probabilities.topk(self.top_k, dim=-1)
        best = best / best.sum(-1, keepdim=True)
        weights = torch.zeros_like(probabilities).scatter(-1, chosen, best)
        routed = (weights[..., None] * self.experts(x)).sum(-2)
        return routed + self.shared_expert_gate(x).sigmoid() * self.shared_expert(x)


class Projected(NamedTuple):
    """query, key, value [batch, heads, rows, head_dim]; gate [batch, rows, heads*dim].

    Key and value are repeated to the number of query heads.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    gate: Tensor


class GatedAttention(nn.Module):
    """Full attention with per-head query and key norms and a sigmoid output gate."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        hidden, eps = architecture.hidden_size, architecture.rms_norm_eps
        heads, kv_heads = (
            architecture.num_attention_heads,
            architecture.num_key_value_heads,
        )
        self.head_dim = architecture.head_dim
        self.rotary_dim = architecture.rotary_dim
        self.rope_theta = architecture.rope_theta
        self.groups = heads // kv_heads
        self.q_proj = linear(hidden, 2 * heads * self.head_dim)
        self.k_proj = linear(hidden, kv_heads * self.head_dim)
        self.v_proj = linear(hidden, kv_heads * self.head_dim)
        self.o_proj = linear(heads * self.head_dim, hidden)
        self.q_norm = RMSNorm(self.head_dim, eps)
        self.k_norm = RMSNorm(self.head_dim, eps)

    def forward(self, x: Tensor, past: KeyValue | None) -> tuple[Tensor, KeyValue]:
        """x [batch, rows, hidden], causal, after the rows of `past` if given."""
        offset = 0 if past is None else past[0].shape[2]
        query, key, value, gate = self.project(x, offset)
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        rows, columns = query.shape[2], key.shape[2]
        scores = query @ key.transpose(-1, -2)
        visible = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        weights = self.softmax(scores.masked_fill(~visible, float("-inf")))
        return self.output(weights @ value, gate), (key, value)

    def project(self, x: Tensor, offset: int) -> Projected:
        """Queries, keys and values of rows at the positions offset, offset + 1, ..."""
        batch, rows = x.shape[:2]
        # The checkpoint stores query and gate head by head: [head, (query, gate), dim].
        query, gate = (
            self.q_proj(x).view(batch, rows, -1, 2 * self.head_dim).chunk(2, -1)
        )
        key = self.k_proj(x).view(batch, rows, -1, self.head_dim)
        value = self.v_proj(x).view(batch, rows, -1, self.head_dim)
        query = self.rotate(self.q_norm(query).transpose(1, 2), offset)
        key = self.rotate(self.k_norm(key).transpose(1, 2), offset)
        key = key.repeat_interleave(self.groups, 1)
        value = value.transpose(1, 2).repeat_interleave(self.groups, 1)
        return Projected(query, key, value, gate.reshape(batch, rows, -1))

    def softmax(self, scores: Tensor) -> Tensor:
        return (scores.float() * self.head_dim**-0.5).softmax(-1)

    def output(self, attended: Tensor, gate: Tensor) -> Tensor:
        merged = attended.transpose(1, 2).flatten(2)
        return self.o_proj(merged * gate.sigmoid())

    def rotate(self, x: Tensor, offset: int) -> Tensor:
        """Rotary positions on the first `rotary_dim` dimensions, in two halves."""
        half = self.rotary_dim // 2
        frequency = self.rope_theta ** -(torch.arange(half) / half)
        angle = (torch.arange(x.shape[2]) + offset)[:, None] * frequency
        cos, sin = angle.cos(), angle.sin()
        first, second = x[..., :half], x[..., half : 2 * half]
        return torch.cat(
            [
                first * cos - second * sin,
                second * cos + first * sin,
                x[..., 2 * half :],
            ],
            -1,
        )


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)
