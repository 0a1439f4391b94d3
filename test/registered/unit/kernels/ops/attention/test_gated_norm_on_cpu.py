"""Gated norms on a CPU whose kernels do not serve them."""

import itertools
import unittest
from unittest.mock import patch

import torch
from torch.nn import functional

from sglang.kernels.ops.attention.fla import fused_norm_gate, layernorm_gated
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

NUM_TOKENS, HIDDEN = 5, 12


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


class TestGatedNormOnCpu(CustomTestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)

    def test_every_option_of_the_kernel(self):
        for rms, before_gate, activation, (group_size, has_gate) in itertools.product(
            (True, False),
            (True, False),
            ("swish", "sigmoid"),
            ((None, True), (4, True), (4, False)),
        ):
            with self.subTest(
                rms=rms,
                before_gate=before_gate,
                activation=activation,
                group_size=group_size,
                has_gate=has_gate,
            ):
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
                groups = group_size or HIDDEN
                expected = reference_norm(
                    x, weight, bias, z, 1e-5, groups, before_gate, rms, activation
                )
                torch.testing.assert_close(actual, expected)

    def test_a_gate_by_heads_is_taken(self):
        heads = torch.randn(2, 3, HIDDEN)
        x, weight = torch.randn(6, HIDDEN), torch.randn(HIDDEN)
        actual = layernorm_gated.rms_norm_gated(
            x=x, weight=weight, bias=None, z=heads, is_rms_norm=True
        )
        expected = reference_norm(
            x, weight, None, heads.view(6, HIDDEN), 1e-6, HIDDEN, True, True, "swish"
        )
        torch.testing.assert_close(actual, expected)

    def test_the_module_runs_where_the_cpu_has_no_amx(self):
        norm = layernorm_gated.RMSNorm(HIDDEN, eps=1e-6)
        x, z = torch.randn(2, NUM_TOKENS, HIDDEN)
        expected = reference_norm(
            x, norm.weight.detach(), None, z, 1e-6, HIDDEN, True, True, "swish"
        )
        with patch.object(layernorm_gated, "_use_cpu", False):
            torch.testing.assert_close(norm(x, z).detach(), expected)

    def test_fused_norm_gate(self):
        for activation, has_residual in itertools.product(
            ("swish", "sigmoid"), (False, True)
        ):
            with self.subTest(activation=activation, has_residual=has_residual):
                norm = fused_norm_gate.FusedRMSNormGated(HIDDEN, activation=activation)
                norm.weight.data.normal_()
                x, gate, residual = torch.randn(3, NUM_TOKENS, HIDDEN)
                total = x + residual if has_residual else x
                weight = norm.weight.detach()
                expected = reference_norm(
                    total, weight, None, gate, 1e-5, HIDDEN, True, True, activation
                )
                with patch.object(fused_norm_gate, "_use_cpu", False):
                    actual = norm(x, gate, residual if has_residual else None)
                torch.testing.assert_close(actual.detach(), expected)


if __name__ == "__main__":
    unittest.main()
