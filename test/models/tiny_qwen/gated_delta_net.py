"""Gated DeltaNet, the linear attention of Qwen3.5, in its chunked form.

Yang, Kautz, Hatamizadeh: Gated Delta Networks, arXiv:2412.06464, section 3.3.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tiny_qwen.architecture import Architecture
from tiny_qwen.layers import linear

CHUNK = 64

ConvDeltaState = tuple[Tensor, Tensor]


class GatedDeltaNet(nn.Module):
    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        hidden = architecture.hidden_size
        self.architecture = architecture
        key_dim, value_dim = architecture.linear_key_dim, architecture.linear_value_dim
        value_heads = architecture.linear_num_value_heads
        channels = 2 * key_dim + value_dim
        self.in_proj_qkv = linear(hidden, channels)
        self.in_proj_z = linear(hidden, value_dim)
        self.in_proj_b = linear(hidden, value_heads)
        self.in_proj_a = linear(hidden, value_heads)
        self.conv1d = nn.Conv1d(
            channels,
            channels,
            architecture.linear_conv_kernel_dim,
            groups=channels,
            bias=False,
        )
        self.dt_bias = nn.Parameter(torch.zeros(value_heads))
        self.A_log = nn.Parameter(torch.zeros(value_heads))
        self.norm = GatedNorm(
            architecture.linear_value_head_dim, architecture.rms_norm_eps
        )
        self.out_proj = linear(value_dim, hidden)

    def forward(
        self, x: Tensor, past: ConvDeltaState | None
    ) -> tuple[Tensor, ConvDeltaState]:
        """x [batch, rows, hidden] -> the same shape, and the state after the last row.

        The state is the last inputs of the convolution [batch, kernel - 1, channels]
        and the delta rule's matrix [batch, value_heads, key_head_dim, value_head_dim].
        """
        sizes = self.architecture
        batch, rows = x.shape[:2]
        conv_past, delta_past = past or (None, None)
        mixed, conv_state = self.convolve(self.in_proj_qkv(x).float(), conv_past)
        query, key, value = mixed.split(
            [sizes.linear_key_dim, sizes.linear_key_dim, sizes.linear_value_dim], -1
        )
        groups = sizes.linear_num_value_heads // sizes.linear_num_key_heads
        query, key = (
            unit(by_head(part, sizes.linear_key_head_dim)).repeat_interleave(groups, 1)
            for part in (query, key)
        )
        value = by_head(value, sizes.linear_value_head_dim)
        beta = self.in_proj_b(x).float().sigmoid().transpose(1, 2)
        step = F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        log_decay = (-self.A_log.exp() * step).transpose(1, 2)
        with torch.autocast("cpu", enabled=False):
            out, delta_state = gated_delta_rule(
                query * sizes.linear_key_head_dim**-0.5,
                key,
                value,
                beta,
                log_decay,
                delta_past,
            )
        gate = self.in_proj_z(x).view(batch, rows, -1, sizes.linear_value_head_dim)
        out = self.norm(out.transpose(1, 2), gate)
        return self.out_proj(out.flatten(2)), (conv_state, delta_state)

    def convolve(self, x: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """Causal depthwise convolution and SiLU over x [batch, rows, channels]."""
        weight = self.conv1d.weight[:, 0]
        taps, rows = weight.shape[1], x.shape[1]
        if past is None:
            past = x.new_zeros(x.shape[0], taps - 1, x.shape[2])
        padded = torch.cat([past, x], 1)
        shifted = [padded[:, tap : tap + rows] * weight[:, tap] for tap in range(taps)]
        return F.silu(torch.stack(shifted).sum(0)), padded[:, rows:]


class GatedNorm(nn.Module):
    """RMS norm with a plain weight, times SiLU of the gate."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        mean_square = x.square().mean(-1, keepdim=True)
        normed = x * torch.rsqrt(mean_square + self.eps) * self.weight
        return normed * F.silu(gate.float())


def gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    beta: Tensor,
    log_decay: Tensor,
    state: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Run the gated delta rule over all rows.

    Each row: state = decay * (I - beta * key key^T) state + beta * key value^T, then
    out = query state. Inside a chunk the recurrence is a triangular solve, between
    chunks it is a loop.

    Args:
        query, key: [batch, heads, rows, key_dim], `key` of unit length.
        value: [batch, heads, rows, value_dim].
        beta, log_decay: [batch, heads, rows]; log_decay <= 0.
        state: [batch, heads, key_dim, value_dim] or None for zeros.

    Returns:
        out [batch, heads, rows, value_dim] and the last state.
    """
    rows = query.shape[2]
    size = min(CHUNK, rows)
    padding = -rows % size
    query, key, value = (
        F.pad(x, (0, 0, 0, padding)).unflatten(2, (-1, size))
        for x in (query, key, value)
    )
    beta, log_decay = (
        F.pad(x, (0, padding)).unflatten(2, (-1, size)) for x in (beta, log_decay)
    )
    total = log_decay.cumsum(-1)
    lower = torch.ones(size, size, dtype=torch.bool).tril()
    between = total[..., :, None] - total[..., None, :]
    decay = between.masked_fill(~lower, float("-inf")).exp()
    weighted_key = key * beta[..., None]
    key_columns = key.transpose(-1, -2)

    known = torch.cat(
        [value * beta[..., None], weighted_key * total.exp()[..., None]], -1
    )
    solved = torch.linalg.solve_triangular(
        (weighted_key @ key_columns) * decay, known, upper=False, unitriangular=True
    )
    new_value, old_key = solved.split([value.shape[-1], key.shape[-1]], -1)
    within = (query @ key_columns) * decay
    query = query * total.exp()[..., None]
    to_end = (key * (total[..., -1:] - total).exp()[..., None]).transpose(-1, -2)
    chunk_decay = total[..., -1].exp()[..., None, None]

    if state is None:
        state = value.new_zeros(*value.shape[:2], key.shape[-1], value.shape[-1])
    out = []
    for chunk in range(query.shape[2]):
        delta = new_value[:, :, chunk] - old_key[:, :, chunk] @ state
        out.append(query[:, :, chunk] @ state + within[:, :, chunk] @ delta)
        state = state * chunk_decay[:, :, chunk] + to_end[:, :, chunk] @ delta
    return torch.cat(out, 2)[:, :, :rows], state


def by_head(x: Tensor, head_dim: int) -> Tensor:
    """[batch, rows, heads * head_dim] -> [batch, heads, rows, head_dim]."""
    return x.unflatten(2, (-1, head_dim)).transpose(1, 2)


def unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
