"""Elementwise activations."""

import torch
import torch.nn.functional as F

from .registry import kernel


def _half_width(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


@kernel("silu_and_mul_cpu(Tensor input) -> Tensor", fake=_half_width)
def silu_and_mul_cpu(input: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up for input [..., 2 * d] = [gate | up]; returns [..., d]."""
    gate, up = input.float().chunk(2, dim=-1)
    return (F.silu(gate) * up).to(input.dtype)


@kernel("gelu_and_mul_cpu(Tensor input) -> Tensor", fake=_half_width)
def gelu_and_mul_cpu(input: torch.Tensor) -> torch.Tensor:
    """gelu(gate) * up for input [..., 2 * d] = [gate | up]; returns [..., d]."""
    gate, up = input.float().chunk(2, dim=-1)
    return (F.gelu(gate) * up).to(input.dtype)


@kernel("gelu_tanh_and_mul_cpu(Tensor input) -> Tensor", fake=_half_width)
def gelu_tanh_and_mul_cpu(input: torch.Tensor) -> torch.Tensor:
    """gelu_and_mul with the tanh approximation."""
    gate, up = input.float().chunk(2, dim=-1)
    return (F.gelu(gate, approximate="tanh") * up).to(input.dtype)


@kernel("fused_sigmoid_mul_cpu(Tensor(a!) input, Tensor gate) -> ()")
def fused_sigmoid_mul_cpu(input: torch.Tensor, gate: torch.Tensor) -> None:
    """input *= sigmoid(gate), in place.

    Args:
        input: [num_tokens, num_heads * head_dim], written.
        gate: as many elements, [num_tokens, ...], any strides.
    """
    input.mul_(gate.reshape(input.shape).float().sigmoid())
