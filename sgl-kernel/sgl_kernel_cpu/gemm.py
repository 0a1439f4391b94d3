"""Dense products. Weights keep their own layout: packing is for AMX tiles."""

import torch
import torch.nn.functional as F

from .registry import kernel


def _same(weight: torch.Tensor) -> torch.Tensor:
    return weight


@kernel("convert_weight_packed(Tensor(a) weight) -> Tensor(a)", fake=_same)
def convert_weight_packed(weight: torch.Tensor) -> torch.Tensor:
    """The weight itself, [out_features, in_features] or [experts, ...]."""
    return weight


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """x @ weight.T + bias in x's dtype, accumulated in float32 by PyTorch."""
    return F.linear(x, weight, None if bias is None else bias.to(x.dtype))


def _fake_linear(
    mat1: torch.Tensor,
    mat2: torch.Tensor,
    bias: torch.Tensor | None,
    is_vnni: bool,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    return mat1.new_empty((*mat1.shape[:-1], mat2.shape[0]), dtype=out_dtype)


@kernel(
    "weight_packed_linear(Tensor mat1, Tensor mat2, Tensor? bias, bool is_vnni, "
    "ScalarType? out_dtype=None) -> Tensor",
    fake=_fake_linear,
)
def weight_packed_linear(
    mat1: torch.Tensor,
    mat2: torch.Tensor,
    bias: torch.Tensor | None,
    is_vnni: bool,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """mat1 @ mat2.T + bias.

    Args:
        mat1: [..., in_features].
        mat2: [out_features, in_features], as `convert_weight_packed` returns it.
        bias: [out_features], any float dtype.
        is_vnni: whether mat2 is packed; packing changes nothing here.
        out_dtype: dtype of the product and of its accumulation, mat1's by default.
    """
    if out_dtype is not None and out_dtype != mat1.dtype:
        mat1, mat2 = mat1.to(out_dtype), mat2.to(out_dtype)
    return linear(mat1, mat2, bias)


def _fake_input_projection(
    hidden_states: torch.Tensor,
    qkvz_weight: torch.Tensor,
    ba_weight: torch.Tensor,
    is_vnni: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        _fake_linear(hidden_states, qkvz_weight, None, is_vnni),
        _fake_linear(hidden_states, ba_weight, None, is_vnni),
    )


@kernel(
    "fused_input_proj_cpu(Tensor hidden_states, Tensor qkvz_weight, Tensor ba_weight, "
    "bool is_vnni) -> (Tensor, Tensor)",
    fake=_fake_input_projection,
)
def fused_input_proj_cpu(
    hidden_states: torch.Tensor,
    qkvz_weight: torch.Tensor,
    ba_weight: torch.Tensor,
    is_vnni: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both input projections of a gated delta net layer, [num_tokens, out] each."""
    return linear(hidden_states, qkvz_weight), linear(hidden_states, ba_weight)


def _fake_sigmoid_mul(
    mat1: torch.Tensor,
    mat2: torch.Tensor,
    bias: torch.Tensor | None,
    is_vnni: bool,
    post_mul_mat: torch.Tensor,
) -> torch.Tensor:
    return torch.empty_like(post_mul_mat)


@kernel(
    "fused_linear_sigmoid_mul(Tensor mat1, Tensor mat2, Tensor? bias, bool is_vnni, "
    "Tensor post_mul_mat) -> Tensor",
    fake=_fake_sigmoid_mul,
)
def fused_linear_sigmoid_mul(
    mat1: torch.Tensor,
    mat2: torch.Tensor,
    bias: torch.Tensor | None,
    is_vnni: bool,
    post_mul_mat: torch.Tensor,
) -> torch.Tensor:
    """sigmoid(mat1 @ mat2.T + bias) * post_mul_mat.

    Args:
        mat1: [num_tokens, in_features].
        mat2: [1, in_features], the gate.
        bias: [1].
        post_mul_mat: [num_tokens, hidden_size].
    """
    return torch.sigmoid(linear(mat1, mat2, bias)) * post_mul_mat
