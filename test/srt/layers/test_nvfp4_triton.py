"""Patches 800 and 810: NVFP4 layers compute what compressed-tensors unpacks."""

import pytest
import torch
from compressed_tensors.compressors.nvfp4.helpers import (
    pack_fp4_to_uint8,
    unpack_fp4_from_uint8,
)
from compressed_tensors.quantization.quant_args import FP4_E2M1_DATA
from torch import nn

from harness.quantized_reference import fake_quantized
from sglang.srt.layers.moe.moe_runner import MoeRunnerConfig
from sglang.srt.layers.moe.moe_runner.nvfp4_triton import (
    Nvfp4TritonMoeQuantInfo,
    Nvfp4TritonRunnerCore,
    create_nvfp4_runner,
    prepare_nvfp4_experts,
)
from sglang.srt.layers.moe.token_dispatcher.standard import StandardDispatchOutput
from sglang.srt.layers.moe.topk import StandardTopKOutput
from sglang.srt.layers.quantization.nvfp4_triton import (
    apply_nvfp4_linear,
    prepare_nvfp4_linear,
)

INPUT_SCALE = torch.tensor(0.004)


def random_weight(*shape):
    """Packed codes, block scales, and the values they stand for."""
    codes = FP4_E2M1_DATA.cast_to_fp4(torch.randn(*shape) * 3)
    rows = codes.flatten(0, -2)
    packed = pack_fp4_to_uint8(rows).reshape(*shape[:-1], -1)
    scale = (torch.rand(*shape[:-1], shape[-1] // 16) + 0.5).to(torch.float8_e4m3fn)
    values = unpack_fp4_from_uint8(packed.flatten(0, -2), *rows.shape, torch.float32)
    values = values.reshape(shape) * scale.float().repeat_interleave(16, -1)
    return packed, scale, values


def parameters(layer, **tensors):
    for name, tensor in tensors.items():
        setattr(layer, name, nn.Parameter(tensor, requires_grad=False))
    return layer


def linear(widths, k, weight_scale_2, input_scale):
    packed, scale, values = random_weight(sum(widths), k)
    layer = parameters(nn.Module(), weight=packed, weight_scale=scale)
    layer.logical_widths = widths
    prepare_nvfp4_linear(layer, torch.tensor(weight_scale_2), input_scale)
    rows = torch.tensor(weight_scale_2).repeat_interleave(torch.tensor(widths))
    return layer, values * rows[:, None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("input_scale", [INPUT_SCALE, None], ids=["w4a4", "w4a16"])
@pytest.mark.parametrize(
    ("widths", "k"),
    [([64], 64), ([48, 16], 48), ([1], 32), ([40, 3], 208)],
    ids=["plain", "odd K", "one row", "fused odd rows"],
)
def test_linear(dtype, input_scale, widths, k):
    torch.manual_seed(0)
    scales = [0.01, 0.03][: len(widths)]
    layer, weight = linear(widths, k, scales, input_scale)
    x, bias = torch.randn(2, 3, k).to(dtype), torch.randn(sum(widths)).to(dtype)
    inputs = (
        x.float() if input_scale is None else fake_quantized(x.float(), input_scale)
    )
    expected = (inputs @ weight.T).to(dtype) + bias
    tolerance = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    actual = apply_nvfp4_linear(layer, x, bias)
    torch.testing.assert_close(actual, expected, **tolerance)


def test_linear_may_be_prepared_again_after_a_weight_update():
    torch.manual_seed(0)
    layer, _ = linear([64], 64, [0.01], INPUT_SCALE)
    packed, scale, values = random_weight(64, 64)
    layer.weight.data.copy_(packed)
    layer.weight_scale.data.copy_(scale)
    prepare_nvfp4_linear(layer, torch.tensor([0.02]), INPUT_SCALE)
    x = torch.randn(2, 64)
    expected = fake_quantized(x, INPUT_SCALE) @ values.T * 0.02
    torch.testing.assert_close(apply_nvfp4_linear(layer, x), expected)


TOKENS, HIDDEN, INNER, EXPERTS, TOP_K = 5, 64, 32, 4, 2


class Dispatcher:
    def set_quant_config(self, config):
        self.config = config


def experts(is_weight_only, gate_and_up_scales):
    w13, w13_scale, gate_up = random_weight(EXPERTS, 2 * INNER, HIDDEN)
    w2, w2_scale, down = random_weight(EXPERTS, HIDDEN, INNER)
    layer = parameters(
        nn.Module(),
        w13_weight=w13,
        w13_weight_scale=w13_scale,
        w2_weight=w2,
        w2_weight_scale=w2_scale,
    )
    layer.dispatcher = Dispatcher()
    layer.should_fuse_routed_scaling_factor_in_topk = True
    w13_scale_2 = torch.tensor([gate_and_up_scales] * EXPERTS)
    w2_scale_2 = torch.linspace(0.01, 0.04, EXPERTS)
    input_scales = (None, None)
    if not is_weight_only:
        input_scales = (INPUT_SCALE, torch.linspace(0.001, 0.01, EXPERTS))
    prepare_nvfp4_experts(layer, w13_scale_2, w2_scale_2, *input_scales)
    rows = w13_scale_2.repeat_interleave(INNER, 1)[:, :, None]
    return layer, gate_up * rows, down * w2_scale_2[:, None, None], input_scales


def expected_of(x, weights, ids, gate_up, down, input_scales):
    out = torch.zeros_like(x)
    for token in range(TOKENS):
        for weight, expert in zip(weights[token], ids[token], strict=True):
            if expert < 0:
                continue
            row = x[token : token + 1]
            if input_scales[0] is not None:
                row = fake_quantized(row, input_scales[0])
            gate, up = (row @ gate_up[expert].T).chunk(2, -1)
            inner = nn.functional.silu(gate) * up
            if input_scales[1] is not None:
                inner = fake_quantized(inner, input_scales[1][expert])
            out[token] += weight * (inner @ down[expert].T)[0]
    return out


@pytest.mark.parametrize("is_weight_only", [False, True], ids=["w4a4", "w4a16"])
def test_experts(is_weight_only):
    torch.manual_seed(0)
    layer, gate_up, down, scales = experts(is_weight_only, [0.01, 0.01])
    x = torch.randn(TOKENS, HIDDEN)
    ids = torch.rand(TOKENS, EXPERTS).argsort(1)[:, :TOP_K].int()
    ids[0, 1] = -1  # on another rank
    weights = torch.rand(TOKENS, TOP_K)
    dispatched = StandardDispatchOutput(x, None, StandardTopKOutput(weights, ids, None))
    config = MoeRunnerConfig()
    actual = Nvfp4TritonRunnerCore(config).run_from_dispatch(
        dispatched, Nvfp4TritonMoeQuantInfo.of(layer), config
    )
    expected = expected_of(x, weights, ids, gate_up, down, scales)
    torch.testing.assert_close(actual.hidden_states, expected)


def test_gate_and_up_with_scales_of_their_own_are_tied():
    torch.manual_seed(0)
    layer, gate_up, down, scales = experts(True, [0.01, 0.02])
    x, weights = torch.randn(TOKENS, HIDDEN), torch.ones(TOKENS, 1)
    ids = torch.arange(TOKENS)[:, None] % EXPERTS
    dispatched = StandardDispatchOutput(x, None, StandardTopKOutput(weights, ids, None))
    config = MoeRunnerConfig()
    actual = Nvfp4TritonRunnerCore(config).run_from_dispatch(
        dispatched, Nvfp4TritonMoeQuantInfo.of(layer), config
    )
    expected = expected_of(x, weights, ids, gate_up, down, scales)
    # A power of two leaves the block scales exact.
    torch.testing.assert_close(actual.hidden_states, expected)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("activation", "gelu"), ("swiglu_limit", 7.0), ("no_combine", True)],
)
def test_what_the_kernels_do_not_compute_is_an_error_that_names_it(setting, value):
    message = setting
    with pytest.raises(ValueError, match=message):
        create_nvfp4_runner(MoeRunnerConfig(**{setting: value}))
