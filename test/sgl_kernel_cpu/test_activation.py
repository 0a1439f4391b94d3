import math

import pytest
import torch

ops = torch.ops.sgl_kernel


def silu(x):
    return x / (1 + (-x).exp())


def gelu(x):
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x * (1 + torch.tanh(inner)) / 2


@pytest.mark.parametrize(
    ("op", "function"),
    [
        (ops.silu_and_mul_cpu, silu),
        (ops.gelu_and_mul_cpu, gelu),
        (ops.gelu_tanh_and_mul_cpu, gelu_tanh),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(0, 8), (1, 8), (5, 12), (2, 3, 6)])
def test_gate_times_up(op, function, dtype, shape):
    x = torch.randn(shape, dtype=dtype)
    gate, up = x.double().chunk(2, dim=-1)
    torch.testing.assert_close(op(x), (function(gate) * up).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sigmoid_gate_is_applied_in_place_to_a_gate_of_any_strides(dtype):
    x = torch.randn(5, 24, dtype=dtype)
    gate = torch.randn(5, 4, 12, dtype=dtype)[..., 6:]
    expected = x.double() / (1 + (-gate.reshape(5, 24).double()).exp())
    assert ops.fused_sigmoid_mul_cpu(x, gate) is None
    torch.testing.assert_close(x, expected.to(dtype))
