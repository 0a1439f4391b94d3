import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

ops = torch.ops.sgl_kernel


@given(
    rows=st.integers(0, 5),
    out_features=st.integers(1, 9),
    in_features=st.integers(1, 9),
    has_bias=st.booleans(),
)
def test_linear_in_float32(rows, out_features, in_features, has_bias):
    x, weight = torch.randn(rows, in_features), torch.randn(out_features, in_features)
    bias = torch.randn(out_features) if has_bias else None
    expected = x.double() @ weight.double().t() + (bias if has_bias else 0)
    packed = ops.convert_weight_packed(weight)
    out = ops.weight_packed_linear(x, packed, bias, True)
    torch.testing.assert_close(out, expected.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, 64), (2, 3, 64)])
def test_bfloat16_accumulates_in_float32(shape):
    x = torch.randn(shape, dtype=torch.bfloat16)
    weight = torch.randn(48, 64, dtype=torch.bfloat16)
    bias = torch.randn(48)
    exact = x.double() @ weight.double().t()
    out = ops.weight_packed_linear(x, weight, bias, True)
    assert out.dtype == torch.bfloat16
    expected = (exact + bias).to(torch.bfloat16)
    torch.testing.assert_close(out, expected, atol=0.05, rtol=0.01)
    wide = ops.weight_packed_linear(x, weight, None, True, torch.float32)
    torch.testing.assert_close(wide, exact.float(), atol=1e-4, rtol=1e-5)


def test_input_projection_is_both_products():
    x, qkvz, ba = torch.randn(3, 16), torch.randn(40, 16), torch.randn(8, 16)
    first, second = ops.fused_input_proj_cpu(x, qkvz, ba, True)
    torch.testing.assert_close(first, x @ qkvz.t())
    torch.testing.assert_close(second, x @ ba.t())


def test_shared_expert_gate_scales_every_channel_of_a_token():
    x, gate, shared = torch.randn(3, 16), torch.randn(1, 16), torch.randn(3, 24)
    expected = shared / (1 + (-(x @ gate.t())).exp())
    out = ops.fused_linear_sigmoid_mul(x, gate, None, True, shared)
    torch.testing.assert_close(out, expected)
