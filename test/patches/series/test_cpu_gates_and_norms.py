"""Patches 907 and 908: gates and gated norms that no CPU op serves."""

import pytest
import torch
from torch.nn import functional

from sglang.kernels.ops.attention.fla import fused_norm_gate, layernorm_gated
from sglang.kernels.ops.elementwise.elementwise import (
    fused_gate_sigmoid_mul,
    fused_gate_sigmoid_mul_add,
)

NUM_TOKENS, HIDDEN = 5, 12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shared_expert_is_gated(dtype):
    torch.manual_seed(0)
    hidden, shared, routed = torch.randn(3, NUM_TOKENS, HIDDEN).to(dtype)
    weight = torch.randn(HIDDEN).to(dtype)
    gate = torch.sigmoid(hidden.double() @ weight.double())[:, None]
    gated = gate * shared.double()
    actual = fused_gate_sigmoid_mul(hidden, weight, shared)
    torch.testing.assert_close(actual, gated.to(dtype))
    expected = (gated + routed.double()).to(dtype)
    fused_gate_sigmoid_mul_add(hidden, weight, shared, routed)
    torch.testing.assert_close(routed, expected)


def reference_norm(x, weight, bias, z, eps, group_size, before_gate, rms, activation):
    """Normalise row by row and group by group, in float64."""
    gate_of = torch.sigmoid if activation == "sigmoid" else functional.silu
    out = torch.empty_like(x, dtype=torch.float64)
    for row in range(x.shape[0]):
        values = x[row].double()
        if z is not None and not before_gate:
            values = values * gate_of(z[row].double())
        for start in range(0, x.shape[1], group_size):
            group = values[start : start + group_size]
            if not rms:
                group = group - group.mean()
            scale = (group.square().mean() + eps) ** -0.5
            out[row, start : start + group_size] = group * scale
        out[row] *= weight.double()
        if bias is not None:
            out[row] += bias.double()
        if z is not None and before_gate:
            out[row] *= gate_of(z[row].double())
    return out.to(x.dtype)


@pytest.mark.parametrize("rms", [True, False])
@pytest.mark.parametrize("before_gate", [True, False])
@pytest.mark.parametrize("activation", ["swish", "sigmoid"])
@pytest.mark.parametrize(
    ("group_size", "has_gate"), [(None, True), (4, True), (4, False)]
)
def test_gated_norm(rms, before_gate, activation, group_size, has_gate):
    torch.manual_seed(0)
    x, z = torch.randn(2, NUM_TOKENS, HIDDEN)
    weight, bias = torch.randn(2, HIDDEN)
    bias = None if rms else bias
    z = z if has_gate else None
    actual = layernorm_gated.rms_norm_gated(
        x=x,
        weight=weight,
        bias=bias,
        z=z,
        eps=1e-5,
        group_size=group_size,
        norm_before_gate=before_gate,
        is_rms_norm=rms,
        activation=activation,
    )
    expected = reference_norm(
        x, weight, bias, z, 1e-5, group_size or HIDDEN, before_gate, rms, activation
    )
    torch.testing.assert_close(actual, expected)


def test_gated_norm_takes_a_gate_by_heads():
    torch.manual_seed(0)
    heads = torch.randn(2, 3, HIDDEN)
    x, weight = torch.randn(6, HIDDEN), torch.randn(HIDDEN)
    actual = layernorm_gated.rms_norm_gated(
        x=x, weight=weight, bias=None, z=heads, is_rms_norm=True
    )
    expected = reference_norm(
        x, weight, None, heads.view(6, HIDDEN), 1e-6, HIDDEN, True, True, "swish"
    )
    torch.testing.assert_close(actual, expected)


def test_module_falls_back_where_the_cpu_has_no_amx(monkeypatch):
    monkeypatch.setattr(layernorm_gated, "_use_cpu", False)
    torch.manual_seed(0)
    norm = layernorm_gated.RMSNorm(HIDDEN, eps=1e-6)
    x, z = torch.randn(2, NUM_TOKENS, HIDDEN)
    expected = reference_norm(
        x, norm.weight.detach(), None, z, 1e-6, HIDDEN, True, True, "swish"
    )
    torch.testing.assert_close(norm(x, z).detach(), expected)


@pytest.mark.parametrize("activation", ["swish", "sigmoid"])
@pytest.mark.parametrize("has_residual", [False, True])
def test_fused_norm_gate(monkeypatch, activation, has_residual):
    monkeypatch.setattr(fused_norm_gate, "_use_cpu", False)
    torch.manual_seed(0)
    norm = fused_norm_gate.FusedRMSNormGated(HIDDEN, activation=activation)
    norm.weight.data.normal_()
    x, gate, residual = torch.randn(3, NUM_TOKENS, HIDDEN)
    total = x + residual if has_residual else x
    expected = reference_norm(
        total, norm.weight.detach(), None, gate, 1e-5, HIDDEN, True, True, activation
    )
    actual = norm(x, gate, residual if has_residual else None)
    torch.testing.assert_close(actual.detach(), expected)
