"""The weight of a causal convolution can be loaded again after it was packed."""

import unittest
from unittest.mock import patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.layers import amx_utils
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod

register_cpu_ci(est_time=5, suite="base-a-test-cpu")


def pack(weight: torch.Tensor, is_conv: bool) -> torch.Tensor:
    """Stand in for the packing of the CPU kernels, which drops a dimension."""
    return weight.flatten(1) * 1.0


class TestConvWeightIsUnpackedForUpdates(CustomTestCase):
    def setUp(self):
        self.layer = torch.nn.Module()
        self.loaded = torch.nn.Parameter(torch.randn(32, 1, 4), requires_grad=False)
        self.layer.weight = self.loaded

    def pack(self):
        with (
            patch.object(amx_utils, "amx_process_weight_after_loading", pack),
            patch.object(amx_utils, "cpu_has_amx_support", lambda: True),
        ):
            amx_utils._amx_process_weight_after_loading(self.layer, ["weight"])

    def unpack(self):
        UnquantizedLinearMethod().restore_weights_before_loading(self.layer)

    def test_the_layer_gets_the_tensor_back_that_loading_filled(self):
        self.pack()
        self.assertEqual(self.layer.weight.dim(), 2)
        self.assertEqual(len(list(self.layer.parameters())), 1)
        self.unpack()
        self.assertIs(self.layer.weight, self.loaded)

    def test_the_new_weight_is_packed_anew(self):
        self.pack()
        self.unpack()
        self.layer.weight.data.copy_(torch.full((32, 1, 4), 2.0))
        self.pack()
        self.assertTrue(torch.equal(self.layer.weight, torch.full((32, 4), 2.0)))

    def test_a_layer_without_a_convolution_is_left_alone(self):
        self.layer.weight = torch.nn.Parameter(torch.randn(32, 32), False)
        amx_utils.restore_conv_weight(self.layer)
        self.assertEqual(self.layer.weight.shape, (32, 32))


if __name__ == "__main__":
    unittest.main()
