"""A shared expert is gated on the CPU as on a GPU."""

import unittest

import torch

from sglang.kernels.ops.elementwise.elementwise import (
    fused_gate_sigmoid_mul,
    fused_gate_sigmoid_mul_add,
)
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

NUM_TOKENS, HIDDEN = 5, 12


class TestSharedExpertGateOnCpu(CustomTestCase):
    def test_shared_expert_is_gated_and_added(self):
        for dtype in (torch.float32, torch.bfloat16):
            with self.subTest(dtype=dtype):
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


if __name__ == "__main__":
    unittest.main()
