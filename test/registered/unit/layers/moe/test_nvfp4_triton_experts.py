"""NVFP4 experts compute what compressed-tensors unpacks."""

import os
import unittest

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

from sglang.srt.layers.moe.moe_runner import MoeRunnerConfig
from sglang.srt.layers.moe.moe_runner.nvfp4_triton import (
    Nvfp4TritonMoeQuantInfo,
    Nvfp4TritonRunnerCore,
    create_nvfp4_runner,
    prepare_nvfp4_experts,
)
from sglang.srt.layers.moe.token_dispatcher.standard import StandardDispatchOutput
from sglang.srt.layers.moe.topk import StandardTopKOutput

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

INPUT_SCALE = torch.tensor(0.004)
BLOCK, E2M1_MAX, E4M3_MAX = 16, 6.0, 448.0
TOKENS, HIDDEN, INNER, EXPERTS, TOP_K = 5, 64, 32, 4, 2


def fake_quantized(x, input_scale):
    """x as NVFP4 holds it: block scales in e4m3, values in e2m1, in float64."""
    factor = (1 / input_scale.float()).double()
    blocks = (x.double() * factor).unflatten(-1, (-1, BLOCK))
    scale = blocks.abs().amax(-1, keepdim=True) / E2M1_MAX
    scale = scale.clamp(max=E4M3_MAX).float().to(torch.float8_e4m3fn).double()
    scaled = torch.where(scale == 0, 0.0, blocks / scale)
    values = FP4_E2M1_DATA.cast_to_fp4(scaled.clamp(-E2M1_MAX, E2M1_MAX))
    return (values * scale / factor).flatten(-2).to(x.dtype)


def random_experts(rows, columns):
    """Packed codes, block scales, and the values they stand for, by expert."""
    codes = FP4_E2M1_DATA.cast_to_fp4(torch.randn(EXPERTS * rows, columns) * 3)
    packed = pack_fp4_to_uint8(codes)
    scale = torch.rand(EXPERTS, rows, columns // BLOCK) + 0.5
    scale = scale.to(torch.float8_e4m3fn)
    values = unpack_fp4_from_uint8(packed, *codes.shape, torch.float32)
    values = values.view(EXPERTS, rows, columns)
    values = values * scale.float().repeat_interleave(BLOCK, -1)
    return packed.view(EXPERTS, rows, -1), scale, values


class Dispatcher:
    def set_quant_config(self, config):
        self.config = config


class Layer:
    """Experts as a checkpoint stores them, and the float32 values they stand for."""

    def __init__(self, is_weight_only, gate_and_up_scales):
        w13, w13_scale, gate_up = random_experts(2 * INNER, HIDDEN)
        w2, w2_scale, down = random_experts(HIDDEN, INNER)
        self.module = nn.Module()
        for name, tensor in (
            ("w13_weight", w13),
            ("w13_weight_scale", w13_scale),
            ("w2_weight", w2),
            ("w2_weight_scale", w2_scale),
        ):
            setattr(self.module, name, nn.Parameter(tensor, requires_grad=False))
        self.module.dispatcher = Dispatcher()
        self.module.should_fuse_routed_scaling_factor_in_topk = True
        w13_scale_2 = torch.tensor([gate_and_up_scales] * EXPERTS)
        w2_scale_2 = torch.linspace(0.01, 0.04, EXPERTS)
        self.input_scales = (None, None)
        if not is_weight_only:
            self.input_scales = (INPUT_SCALE, torch.linspace(0.001, 0.01, EXPERTS))
        prepare_nvfp4_experts(self.module, w13_scale_2, w2_scale_2, *self.input_scales)
        self.gate_up = gate_up * w13_scale_2.repeat_interleave(INNER, 1)[:, :, None]
        self.down = down * w2_scale_2[:, None, None]

    def run(self, x, weights, ids):
        topk = StandardTopKOutput(weights, ids, None)
        config = MoeRunnerConfig()
        result = Nvfp4TritonRunnerCore(config).run_from_dispatch(
            StandardDispatchOutput(x, None, topk),
            Nvfp4TritonMoeQuantInfo.of(self.module),
            config,
        )
        return result.hidden_states

    def reference(self, x, weights, ids):
        """Expert by expert and token by token, experts of other ranks (-1) aside."""
        out = torch.zeros_like(x)
        input_scale, inner_scales = self.input_scales
        for token in range(TOKENS):
            for weight, expert in zip(weights[token], ids[token]):
                if expert < 0:
                    continue
                row = x[token : token + 1]
                if input_scale is not None:
                    row = fake_quantized(row, input_scale)
                gate, up = (row @ self.gate_up[expert].T).chunk(2, -1)
                inner = nn.functional.silu(gate) * up
                if inner_scales is not None:
                    inner = fake_quantized(inner, inner_scales[expert])
                out[token] += weight * (inner @ self.down[expert].T)[0]
        return out


class TestNvfp4TritonExperts(CustomTestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)

    def check(self, layer, weights, ids):
        x = torch.randn(TOKENS, HIDDEN)
        actual, expected = (f(x, weights, ids) for f in (layer.run, layer.reference))
        torch.testing.assert_close(actual, expected)

    def test_experts_with_and_without_quantized_activations(self):
        for is_weight_only in (False, True):
            with self.subTest(is_weight_only=is_weight_only):
                layer = Layer(is_weight_only, [0.01, 0.01])
                ids = torch.rand(TOKENS, EXPERTS).argsort(1)[:, :TOP_K].int()
                ids[0, 1] = -1  # on another rank
                self.check(layer, torch.rand(TOKENS, TOP_K), ids)

    def test_gate_and_up_with_scales_of_their_own_are_tied(self):
        # A power of two leaves the block scales exact.
        layer = Layer(True, [0.01, 0.02])
        ids = torch.arange(TOKENS)[:, None] % EXPERTS
        self.check(layer, torch.ones(TOKENS, 1), ids)

    def test_what_the_kernels_do_not_compute_is_an_error_that_names_it(self):
        for setting, value in (
            ("activation", "gelu"),
            ("swiglu_limit", 7.0),
            ("no_combine", True),
        ):
            with self.subTest(setting=setting):
                with self.assertRaisesRegex(ValueError, setting):
                    create_nvfp4_runner(MoeRunnerConfig(**{setting: value}))


if __name__ == "__main__":
    unittest.main()
