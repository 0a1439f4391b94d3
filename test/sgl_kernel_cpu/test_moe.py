import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

ops = torch.ops.sgl_kernel
HIDDEN, INNER, NUM_EXPERTS = 8, 6, 5


def experts(x, w1, w2, weights, ids, **options):
    arguments = {
        "inplace": False,
        "moe_comp_method": 0,
        "w1_scale": None,
        "w2_scale": None,
        "w1_zero": None,
        "w2_zero": None,
        "block_size": None,
        "w1_bias": None,
        "w2_bias": None,
        "alpha": None,
        "limit": None,
        "is_vnni": True,
    }
    return ops.fused_experts_cpu(x, w1, w2, weights, ids, **(arguments | options))


def expert_weights(dtype=torch.float32):
    w1 = torch.randn(NUM_EXPERTS, 2 * INNER, HIDDEN, dtype=dtype)
    return w1, torch.randn(NUM_EXPERTS, HIDDEN, INNER, dtype=dtype)


def each_token_alone(x, w1, w2, weights, ids, unit, b1=None, b2=None):
    out = torch.zeros(x.shape, dtype=torch.float64)
    for token, (row, chosen) in enumerate(zip(weights, ids.tolist(), strict=True)):
        for weight, expert in zip(row, chosen, strict=True):
            if expert < 0:
                continue
            inner = w1[expert].double() @ x[token].double()
            inner = unit(inner if b1 is None else inner + b1[expert])
            y = w2[expert].double() @ inner
            out[token] += weight.double() * (y if b2 is None else y + b2[expert])
    return out.to(x.dtype)


def silu_and_mul(x):
    return F.silu(x[:INNER]) * x[INNER:]


def gelu_and_mul(x):
    return F.gelu(x[:INNER]) * x[INNER:]


@pytest.mark.parametrize(
    ("activation", "unit"), [("silu", silu_and_mul), ("gelu", gelu_and_mul)]
)
@given(num_tokens=st.integers(0, 6), topk=st.integers(1, NUM_EXPERTS))
def test_tokens_get_the_weighted_sum_of_their_experts(
    activation, unit, num_tokens, topk
):
    x, (w1, w2) = torch.randn(num_tokens, HIDDEN), expert_weights()
    weights, ids = ops.topk_softmax_cpu(
        x, torch.randn(num_tokens, NUM_EXPERTS), topk, True
    )
    out = experts(x, w1, w2, weights, ids, activation=activation)
    expected = each_token_alone(x, w1, w2, weights, ids, unit)
    torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-5)


def test_a_route_of_minus_one_goes_nowhere():
    x, (w1, w2) = torch.randn(3, HIDDEN), expert_weights()
    ids = torch.tensor([[0, -1], [-1, -1], [4, 2]], dtype=torch.int32)
    weights = torch.rand(3, 2)
    out = experts(x, w1, w2, weights, ids)
    expected = each_token_alone(x, w1, w2, weights, ids, silu_and_mul)
    torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-5)


def test_biases_and_the_clamped_unit():
    x, (w1, w2) = torch.randn(4, HIDDEN), expert_weights()
    b1, b2 = torch.randn(NUM_EXPERTS, 2 * INNER), torch.randn(NUM_EXPERTS, HIDDEN)
    weights, ids = ops.topk_softmax_cpu(x, torch.randn(4, NUM_EXPERTS), 2, True)

    def unit(inner):
        gate, up = inner[::2].clamp(max=1.5), inner[1::2].clamp(-1.5, 1.5)
        return gate / (1 + (-1.7 * gate).exp()) * (up + 1)

    out = experts(x, w1, w2, weights, ids, w1_bias=b1, w2_bias=b2, alpha=1.7, limit=1.5)
    expected = each_token_alone(x, w1, w2, weights, ids, unit, b1, b2)
    torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-5)


def test_bfloat16_sums_experts_in_float32():
    x, (w1, w2) = torch.randn(4, HIDDEN).bfloat16(), expert_weights(torch.bfloat16)
    weights, ids = ops.topk_softmax_cpu(x, torch.randn(4, NUM_EXPERTS), 3, True)
    out = experts(x, w1, w2, weights, ids)
    expected = each_token_alone(x, w1, w2, weights, ids, silu_and_mul)
    torch.testing.assert_close(out, expected, atol=0.1, rtol=0.02)


def test_what_is_not_supported_is_named():
    x, (w1, w2) = torch.randn(1, HIDDEN), expert_weights()
    weights, ids = torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.int32)
    with pytest.raises(RuntimeError, match="Unsupported activation 'relu'"):
        experts(x, w1, w2, weights, ids, activation="relu")
    with pytest.raises(RuntimeError, match="no quantized experts"):
        experts(x, w1, w2, weights, ids, moe_comp_method=2)


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("op", [ops.topk_softmax_cpu, ops.topk_sigmoid_cpu])
@pytest.mark.parametrize("has_bias", [True, False])
def test_routing_keeps_the_best_scores(op, renormalize, has_bias):
    logits = torch.randn(6, NUM_EXPERTS).bfloat16()
    bias = torch.randn(NUM_EXPERTS) if has_bias else None
    weights, ids = op(torch.randn(6, HIDDEN), logits, 3, renormalize, bias)
    assert weights.dtype == torch.float32 and ids.dtype == torch.int32
    if op is ops.topk_softmax_cpu:
        scores = logits.double().softmax(-1)
    else:
        scores = 1 / (1 + (-logits.double()).exp())
    for row, chosen, score in zip(weights, ids.tolist(), scores, strict=True):
        order = score + (bias if has_bias else 0)
        best = sorted(range(NUM_EXPERTS), key=lambda e: -order[e].item())[:3]
        assert set(chosen) == set(best)
        expected = score[chosen]
        if renormalize:
            expected = expected / expected.sum()
        torch.testing.assert_close(row, expected.float())
