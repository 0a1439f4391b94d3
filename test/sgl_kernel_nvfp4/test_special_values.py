"""Zeros, saturation, ties, NaN and infinity."""

import pytest
import torch

from nvfp4_proof.cases import argmax_case, gemm_case, quantize_case, tie_case
from nvfp4_proof.compiler import compile_launch
from nvfp4_proof.emulator import Schedule
from nvfp4_proof.interpreter import interpret
from nvfp4_proof.run import emulate, machine
from sgl_kernel_nvfp4 import reference
from sgl_kernel_nvfp4.config import GemmConfig, QuantizeConfig
from sgl_kernel_nvfp4.formats import unpack_codes, unswizzle_scales

CONFIG = QuantizeConfig(1, 256, 1)
NAN, INF = float("nan"), float("inf")


def quantized(x, native, way, global_scale=1.0):
    """Codes [M, K] and scales [M, K / 16] of x from the kernel."""
    config = QuantizeConfig(1, 256, 1, native)
    case = quantize_case(*x.shape, config, global_scale=global_scale, x=x)
    if way == "interpreter":
        interpret(case.launch)
    else:
        machine(compile_launch(case.launch)).run(case.launch)
    arguments = case.launch.arguments
    scale = unswizzle_scales(arguments["scale_ptr"], *x.shape)
    return unpack_codes(arguments["code_ptr"]), scale


@pytest.mark.parametrize("way", ["interpreter", "emulator"])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "value", [0.0, -0.0, 1e-30, 3e38, -3e38, INF, -INF, NAN], ids=str
)
def test_quantised_extreme_equals_the_reference(value, native, way):
    x = torch.randn(1, 256, generator=torch.Generator().manual_seed(1))
    x[0, 5], x[0, 16:32] = value, value
    x = x.to(torch.bfloat16)
    codes, scale = quantized(x, native, way)
    want_codes, want_scale = reference.quantize_linear(x, torch.tensor([1.0]))
    assert torch.equal(codes, unpack_codes(want_codes))
    assert torch.equal(scale.view(torch.uint8), want_scale.view(torch.uint8))


def test_a_saturated_scale_is_448_and_not_nan():
    codes, scale = quantized(
        torch.full((1, 64), 3e4, dtype=torch.bfloat16), True, "ptx"
    )
    assert (scale.view(torch.uint8) == 0x7E).all()
    assert (codes == 7).all()


@pytest.mark.parametrize("approximation", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize("native", [True, False])
def test_ties_round_to_even_however_reciprocals_are_rounded(native, approximation):
    """The device may return a reciprocal that is two units off."""
    case = tie_case(QuantizeConfig(1, 1024, 4, native))
    emulate([case], Schedule(approximation=approximation))
    case.check()


def gemm_with(scale_value, row):
    """Output rows of a GEMM in which one row of a has the given scale."""
    case = gemm_case(4, 48, 128, GemmConfig(16, 64, 256, 2, 5))
    a_scale = case.launch.arguments["a_scale_ptr"]
    a_scale.view(torch.uint8).flatten()[16 * row] = scale_value
    machine(compile_launch(case.launch)).run(case.launch)
    return case.launch.arguments["out_ptr"]


def test_a_nan_scale_makes_its_row_nan_and_no_other():
    out = gemm_with(0x7F, row=2)
    assert out[2].isnan().all()
    assert torch.isfinite(out[[0, 1, 3]]).all()


def test_overflow_of_the_output_type_is_infinity():
    case = gemm_case(4, 48, 128, GemmConfig(16, 64, 256, 2, 5), torch.float16)
    case.launch.arguments["alpha_ptr"].fill_(1e30)
    machine(compile_launch(case.launch)).run(case.launch)
    out = case.launch.arguments["out_ptr"]
    assert out.isinf().any() and not out.isnan().any()


def head(edit):
    """(index, value) of a small head after ``edit`` changed its launch's tensors."""
    case = argmax_case(3, 208, 64, GemmConfig(16, 64, 256, 2, 5), first_index=0)
    edit(case.launch.arguments)
    machine(compile_launch(case.launch)).run(case.launch)
    return case.written


def test_equal_logits_give_the_lowest_index():
    def edit(arguments):
        arguments["b_ptr"].copy_(arguments["b_ptr"][:1].expand(208, -1))
        arguments["b_scale_ptr"].fill_(1.0)

    index, value = head(edit)
    assert index.tolist() == [0, 0, 0]
    assert torch.isfinite(value).all()


def test_zero_and_negative_zero_logits_are_equal():
    def edit(arguments):
        arguments["b_ptr"].zero_()
        arguments["b_ptr"][:7] = 0x88  # negative zeros, whose products are negative

    assert head(edit)[0].tolist() == [0, 0, 0]


def test_a_nan_logit_is_the_greatest_and_its_value_is_nan():
    def edit(arguments):
        # Row 97 of the 128x4 layout: rows 96 ... 127 lie 12 bytes into each 16.
        arguments["b_scale_ptr"].view(torch.uint8).flatten()[16 * 1 + 12] = 0x7F

    index, value = head(edit)
    assert index.tolist() == [97, 97, 97]
    assert value.isnan().all()


def test_negative_logits_are_ordered_by_value():
    def edit(arguments):
        arguments["a_ptr"].fill_(0x22)  # ones
        arguments["b_ptr"].fill_(0xFF)  # minus six
        arguments["b_ptr"][150] = 0x99  # minus a half
        arguments["a_scale_ptr"].fill_(1.0)
        arguments["b_scale_ptr"].fill_(1.0)

    index, value = head(edit)
    assert index.tolist() == [150, 150, 150]
    assert torch.allclose(value, torch.tensor(-0.5 * 64 * 0.037))
