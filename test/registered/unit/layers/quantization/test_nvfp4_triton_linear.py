"""NVFP4 linear layers compute what compressed-tensors unpacks."""

import os
import unittest
from types import SimpleNamespace
from unittest.mock import patch

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")

import torch
from compressed_tensors.compressors.nvfp4.helpers import (
    pack_fp4_to_uint8,
    unpack_fp4_from_uint8,
)
from compressed_tensors.quantization.quant_args import FP4_E2M1_DATA
from torch import nn

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.layers.quantization import fp4_utils
from sglang.srt.layers.quantization.nvfp4_triton import (
    apply_nvfp4_linear,
    prepare_nvfp4_linear,
)

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

INPUT_SCALE = torch.tensor(0.004)
PLATFORM = {"is_sm100": False, "is_sm120": False, "device_capability": (9, 0)}
BLOCK, E2M1_MAX, E4M3_MAX = 16, 6.0, 448.0


def fake_quantized(x, input_scale):
    """x as NVFP4 holds it: block scales in e4m3, values in e2m1, in float64."""
    factor = (1 / input_scale.float()).double()
    blocks = (x.double() * factor).unflatten(-1, (-1, BLOCK))
    scale = blocks.abs().amax(-1, keepdim=True) / E2M1_MAX
    scale = scale.clamp(max=E4M3_MAX).float().to(torch.float8_e4m3fn).double()
    scaled = torch.where(scale == 0, 0.0, blocks / scale)
    values = FP4_E2M1_DATA.cast_to_fp4(scaled.clamp(-E2M1_MAX, E2M1_MAX))
    return (values * scale / factor).flatten(-2).to(x.dtype)


def random_weight(rows, columns):
    """Packed codes, block scales, and the values they stand for."""
    codes = FP4_E2M1_DATA.cast_to_fp4(torch.randn(rows, columns) * 3)
    packed = pack_fp4_to_uint8(codes)
    scale = (torch.rand(rows, columns // BLOCK) + 0.5).to(torch.float8_e4m3fn)
    values = unpack_fp4_from_uint8(packed, rows, columns, torch.float32)
    return packed, scale, values * scale.float().repeat_interleave(BLOCK, -1)


def linear(widths, k, weight_scale_2, input_scale):
    packed, scale, values = random_weight(sum(widths), k)
    layer = nn.Module()
    layer.weight = nn.Parameter(packed, requires_grad=False)
    layer.weight_scale = nn.Parameter(scale, requires_grad=False)
    layer.logical_widths = widths
    prepare_nvfp4_linear(layer, torch.tensor(weight_scale_2), input_scale)
    rows = torch.tensor(weight_scale_2).repeat_interleave(torch.tensor(widths))
    return layer, values * rows[:, None]


class TestNvfp4TritonLinear(CustomTestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)

    def test_weights_and_activations_in_nvfp4(self):
        self.check(INPUT_SCALE)

    def test_weights_in_nvfp4(self):
        self.check(None)

    def check(self, input_scale):
        for widths, k in (([64], 64), ([48, 16], 48), ([1], 32), ([40, 3], 208)):
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(widths=widths, k=k, dtype=dtype):
                    self.check_layer(widths, k, dtype, input_scale)

    def check_layer(self, widths, k, dtype, input_scale):
        scales = [0.01, 0.03][: len(widths)]
        layer, weight = linear(widths, k, scales, input_scale)
        x = torch.randn(2, 3, k).to(dtype)
        bias = torch.randn(sum(widths)).to(dtype)
        inputs = x.float()
        if input_scale is not None:
            inputs = fake_quantized(inputs, input_scale)
        expected = (inputs @ weight.T).to(dtype) + bias
        tolerance = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
        actual = apply_nvfp4_linear(layer, x, bias)
        torch.testing.assert_close(actual, expected, **tolerance)

    def test_a_layer_may_be_prepared_again_after_a_weight_update(self):
        layer, _ = linear([64], 64, [0.01], INPUT_SCALE)
        packed, scale, values = random_weight(64, 64)
        layer.weight.data.copy_(packed)
        layer.weight_scale.data.copy_(scale)
        prepare_nvfp4_linear(layer, torch.tensor([0.02]), INPUT_SCALE)
        x = torch.randn(2, 64)
        expected = fake_quantized(x, INPUT_SCALE) @ values.T * 0.02
        torch.testing.assert_close(apply_nvfp4_linear(layer, x), expected)

    def test_the_cpu_takes_triton_by_itself_and_others_what_they_took(self):
        self.assertTrue(self.backend_of_auto(is_cpu=True).is_triton())
        backend = self.backend_of_auto(is_cpu=False, is_sm100=True)
        self.assertTrue(backend.is_flashinfer_cutedsl())
        backend = self.backend_of_auto(is_cpu=False, is_sm120=True)
        self.assertTrue(backend.is_flashinfer_cutlass())
        with (
            patch.object(fp4_utils, "is_cuda", lambda: True),
            patch.object(fp4_utils, "get_device_capability", lambda: (9, 0)),
        ):
            self.assertTrue(self.backend_of_auto(is_cpu=False).is_marlin())

    def backend_of_auto(self, is_cpu, **platform):
        kernel = SimpleNamespace(fp4_gemm_runner_backend="auto")
        context = SimpleNamespace(kernel=kernel)
        facts = SimpleNamespace(**{**PLATFORM, **platform})
        with (
            patch.object(fp4_utils, "get_exec", lambda: context),
            patch.object(fp4_utils, "get_platform", lambda: facts),
            patch.object(fp4_utils, "is_cpu", lambda: is_cpu),
            patch.object(fp4_utils, "FP4_GEMM_RUNNER_BACKEND", None),
        ):
            fp4_utils.initialize_fp4_gemm_config()
            return fp4_utils.get_fp4_gemm_runner_backend()


if __name__ == "__main__":
    unittest.main()
