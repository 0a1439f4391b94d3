import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

ops = torch.ops.sgl_kernel
EPS = 1e-6


def rms_norm(x, scale):
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * scale


def close(actual, expected):
    torch.testing.assert_close(actual, expected.to(actual.dtype))


@given(num_tokens=st.integers(0, 5), hidden_size=st.integers(1, 40))
def test_rmsnorm_is_scaled_by_the_weight(num_tokens, hidden_size):
    x, weight = torch.randn(num_tokens, hidden_size), torch.randn(hidden_size)
    close(ops.rmsnorm_cpu(x, weight, EPS), rms_norm(x, weight))
    close(ops.gemma_rmsnorm_cpu(x, weight, EPS), rms_norm(x, 1 + weight))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_rounded_once(dtype):
    x, weight = torch.randn(7, 64, dtype=dtype), torch.randn(64, dtype=dtype)
    expected = rms_norm(x, weight.double()).to(dtype)
    assert torch.equal(ops.rmsnorm_cpu(x, weight, EPS), expected)


def test_strided_input_is_normed_as_its_values():
    x, weight = torch.randn(4, 3, 16).transpose(0, 1), torch.randn(16)
    close(ops.gemma_rmsnorm_cpu(x, weight, EPS), rms_norm(x, 1 + weight))


@pytest.mark.parametrize(
    ("op", "shift"),
    [(ops.fused_add_rmsnorm_cpu, 0), (ops.gemma_fused_add_rmsnorm_cpu, 1)],
)
def test_fused_add_writes_the_sum_and_its_norm(op, shift):
    x, residual, weight = torch.randn(3, 32), torch.randn(3, 32), torch.randn(32)
    total = x.double() + residual.double()
    assert op(x, residual, weight, EPS) is None
    close(residual, total)
    close(x, rms_norm(total, weight + shift))


def test_gated_norm_multiplies_by_silu_of_the_gate():
    x, gate, weight = torch.randn(6, 16), torch.randn(3, 2, 16), torch.randn(16)
    z = gate.reshape(6, 16).double()
    expected = rms_norm(x, weight) * z / (1 + (-z).exp())
    close(ops.fused_rmsnorm_gated_cpu(x, weight, gate, EPS), expected)


@pytest.mark.parametrize("has_bias", [True, False])
def test_layernorm(has_bias):
    x, weight = torch.randn(4, 2, 24), torch.randn(24)
    bias = torch.randn(24) if has_bias else None
    centered = x.double() - x.double().mean(-1, keepdim=True)
    expected = centered / (centered.square().mean(-1, keepdim=True) + EPS).sqrt()
    expected = expected * weight + (bias if has_bias else 0)
    close(ops.layernorm_cpu(x, weight, bias, EPS), expected)


def test_query_and_key_are_normed_by_head_and_keep_their_shape():
    qkv = torch.randn(5, 4 * 8 + 2 * 8 + 16)
    q, k, _ = qkv.split([32, 16, 16], dim=-1)
    q_weight, k_weight = torch.randn(8), torch.randn(8)
    q_out, k_out = ops.fused_qk_gemma_rmsnorm_cpu(q, k, q_weight, k_weight, EPS, 8)
    close(q_out, rms_norm(q.reshape(5, 4, 8), 1 + q_weight).view(5, 32))
    close(k_out, rms_norm(k.reshape(5, 2, 8), 1 + k_weight).view(5, 16))
    assert q_out.is_contiguous() and k_out.is_contiguous()


@pytest.mark.parametrize("num_tokens", [0, 1, 5])
def test_gate_is_split_from_query_head_by_head(num_tokens):
    q_gate, k = torch.randn(num_tokens, 4 * 2 * 8), torch.randn(num_tokens, 2 * 8)
    q_weight, k_weight = torch.randn(8), torch.randn(8)
    query, key, gate = ops.fused_qk_gemma_rmsnorm_with_gate_cpu(
        q_gate, k, q_weight, k_weight, EPS, 8, 4
    )
    by_head = q_gate.view(num_tokens, 4, 16)
    close(query.view(num_tokens, 4, 8), rms_norm(by_head[..., :8], 1 + q_weight))
    close(key.view(num_tokens, 2, 8), rms_norm(k.view(-1, 2, 8), 1 + k_weight))
    assert torch.equal(gate.view(num_tokens, 4, 8), by_head[..., 8:])
    assert gate.is_contiguous()
