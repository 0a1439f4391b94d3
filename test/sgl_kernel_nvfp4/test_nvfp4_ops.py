"""The ops as users call them: shapes, errors, fakes, the CPU path."""

import pytest
import torch

import sgl_kernel_nvfp4 as kernels
from sgl_kernel_nvfp4 import reference
from sgl_kernel_nvfp4.workspace import reserve, workspace

ONE = torch.tensor([1.0])


def weight(n, k, seed=0):
    values = torch.randn(n, k, generator=torch.Generator().manual_seed(seed))
    return kernels.quantize(values.to(torch.bfloat16), torch.tensor([4.0]))


def activations(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).bfloat16()


@pytest.mark.parametrize("m", [0, 1, 5, 130])
@pytest.mark.parametrize("k", [16, 48, 64, 80, 272])
def test_gemm_on_the_cpu_equals_float64(m, k):
    x = activations(m, k)
    a, a_scale = kernels.quantize(x, torch.tensor([5.0]))
    b, b_scale = weight(48, k)
    out = kernels.gemm(a, a_scale, b, b_scale, torch.tensor([0.05]), torch.float32)
    answer = reference.gemm(a, a_scale, b, b_scale, torch.tensor([0.05]), k)
    assert out.shape == (m, 48)
    assert torch.allclose(out.double(), answer, rtol=1e-4, atol=1e-4)


def test_quantised_product_is_near_the_exact_one():
    x, w = activations(7, 512), activations(64, 512)
    scale = torch.tensor([2.0])
    a, b = kernels.quantize(x, scale), kernels.quantize(w, scale)
    out = kernels.gemm(*a, *b, torch.tensor([0.25]), torch.float32)
    exact = x.float() @ w.float().T
    assert (out - exact).norm() / exact.norm() < 0.2
    half = kernels.w4a16_gemm(x, *b, torch.tensor([0.5]))
    assert (half - exact).norm() / exact.norm() < 0.15


def test_leading_dimensions_are_kept():
    x = activations(2, 3, 64)
    a, a_scale = kernels.quantize(x, ONE)
    assert a.shape == (2, 3, 32) and a_scale.shape == (128, 4)
    assert kernels.gemm(a, a_scale, *weight(32, 64), ONE).shape == (2, 3, 32)
    assert kernels.w4a16_gemm(x, *weight(32, 64), ONE).shape == (2, 3, 32)


def test_strided_rows_give_what_contiguous_ones_give():
    x = activations(5, 128)[:, :64]
    assert torch.equal(kernels.quantize(x, ONE)[0], kernels.quantize(x.clone(), ONE)[0])


def test_rmsnorm_updates_the_residual_and_equals_the_unfused_ops():
    x, residual, norm = activations(3, 64), activations(3, 64) * 2, activations(64)
    before = residual.clone()
    codes, _scale = kernels.rmsnorm_quantize(x, norm, 1e-6, ONE, residual, 1.0)
    assert torch.equal(residual, (x.double() + before.double()).bfloat16())
    normed, _ = reference.rmsnorm(x, norm, 1e-6, before, 1.0)
    assert torch.equal(codes, kernels.quantize(normed, ONE)[0])


@pytest.mark.parametrize("gate_first", [True, False])
def test_silu_and_mul_takes_the_gate_from_either_half(gate_first):
    x = activations(3, 128)
    gate, up = x.float().chunk(2, -1) if gate_first else x.float().chunk(2, -1)[::-1]
    product = (torch.nn.functional.silu(gate.double()) * up.double()).bfloat16()
    codes, _ = kernels.silu_and_mul_quantize(x, ONE, gate_first=gate_first)
    assert torch.equal(codes, kernels.quantize(product, ONE)[0])


def test_argmax_head_finds_the_greatest_logit_of_its_part_of_the_vocabulary():
    x = activations(4, 64)
    a, b = kernels.quantize(x, ONE), weight(96, 64)
    logits = kernels.gemm(*a, *b, ONE, torch.float32)
    index, value = kernels.argmax_head(*a, *b, ONE, 1000)
    assert torch.equal(index, logits.argmax(-1) + 1000)
    assert torch.equal(value, logits.amax(-1))


def routed(tokens, experts=4, top_k=2, hidden=64, inner=32):
    generator = torch.Generator().manual_seed(3)
    x = activations(tokens, hidden)
    w13 = torch.randn(experts, 2 * inner, hidden, generator=generator).bfloat16()
    w2 = torch.randn(experts, hidden, inner, generator=generator).bfloat16()
    ids = torch.rand(tokens, experts, generator=generator).topk(top_k).indices.int()
    weights = torch.rand(tokens, top_k, generator=generator)
    return x, w13, w2, ids, weights


def experts_of(w):
    parts = [kernels.quantize(expert, ONE) for expert in w]
    return [torch.stack(tensors) for tensors in zip(*parts, strict=True)]


@pytest.mark.parametrize("tokens", [0, 1, 9])
def test_moe_equals_a_loop_over_tokens(tokens):
    x, w13, w2, ids, weights = routed(tokens)
    c13, s13 = experts_of(w13)
    c2, s2 = experts_of(w2)
    alpha = torch.ones(4)
    block_m = kernels.moe_block_m(tokens, 2, 4)
    routing = reference.align_tokens(ids, block_m, 4)
    out = kernels.moe(
        x, c13, s13, alpha, ONE, c2, s2, alpha, ONE, weights, ids, *routing, block_m
    )
    assert out.shape == x.shape
    for token in range(tokens):
        total = torch.zeros(64)
        for choice, expert in enumerate(ids[token].tolist()):
            up = reference.dequantize(c13[expert], s13[expert], 64, torch.float32)
            down = reference.dequantize(c2[expert], s2[expert], 32, torch.float32)
            row = reference.fake_quantize(x[token : token + 1], ONE)
            hidden = (row @ up.T).bfloat16()
            product = reference.silu_and_mul(hidden, gate_first=False)
            row = reference.fake_quantize(product, ONE)
            total += weights[token, choice] * (row @ down.T)[0]
        assert torch.allclose(out[token].float(), total, rtol=0.05, atol=2.0)


def test_align_tokens_pads_each_expert_to_whole_blocks():
    ids = torch.tensor([[2, 0], [2, 1], [-1, 2]], dtype=torch.int32)
    pairs, experts, count = reference.align_tokens(ids, 4, 3)
    assert pairs.tolist() == [4, 6, 6, 6, 1, 6, 6, 6, 3, 6, 6, 6, 0, 2, 5, 6]
    assert experts.tolist() == [-1, 0, 1, 2]
    assert count.tolist() == [16]


def bad_calls():
    a, a_scale = kernels.quantize(activations(4, 64), ONE)
    b, b_scale = weight(32, 64)
    x = activations(4, 64)
    return {
        "K of a": (
            lambda: kernels.gemm(a[:, :12], a_scale, b, b_scale, ONE),
            "multiple of 16",
        ),
        "K differs": (
            lambda: kernels.gemm(a[:, :16].clone(), a_scale[:, :4], b, b_scale, ONE),
            "and b",
        ),
        "codes type": (
            lambda: kernels.gemm(a.int(), a_scale, b, b_scale, ONE),
            "uint8 codes",
        ),
        "scale type": (
            lambda: kernels.gemm(a, a_scale.float(), b, b_scale, ONE),
            "a_scale must be",
        ),
        "scale shape": (
            lambda: kernels.gemm(a, a_scale[:64], b, b_scale, ONE),
            r"\[128, 4\]",
        ),
        "N": (lambda: kernels.gemm(a, a_scale, b[:24], b_scale, ONE), "N = 24"),
        "alpha": (
            lambda: kernels.gemm(a, a_scale, b, b_scale, torch.ones(2)),
            "alpha must be",
        ),
        "out type": (
            lambda: kernels.gemm(a, a_scale, b, b_scale, ONE, torch.int8),
            "out_dtype",
        ),
        "x type": (lambda: kernels.quantize(x.float(), ONE), "float16 or bfloat16"),
        "x width": (lambda: kernels.quantize(x[:, :24], ONE), "multiple of 16"),
        "x of w4a16": (
            lambda: kernels.w4a16_gemm(x[:, :32], b, b_scale, ONE),
            r"needs b",
        ),
        "norm weight": (
            lambda: kernels.rmsnorm_quantize(x, x[0, :32], 1e-6, ONE),
            "weight must be",
        ),
        "top_k": (lambda: kernels.combine(x, 3), "no multiple of top_k"),
    }


@pytest.mark.parametrize("name", bad_calls())
def test_bad_argument_is_an_error_that_says_what_was_expected(name):
    call, message = bad_calls()[name]
    with pytest.raises(ValueError, match=message):
        call()


def op_samples():
    x = activations(4, 64)
    # opcheck cannot compare float8 inputs; the ops take the bytes as well.
    a, b = (
        (codes, scale.view(torch.uint8))
        for codes, scale in (kernels.quantize(x, ONE), weight(32, 64))
    )
    return {
        "quantize": (x, ONE),
        "silu_and_mul_quantize": (activations(4, 128), ONE),
        "rmsnorm_quantize": (x, activations(64), 1e-6, ONE, activations(4, 64)),
        "gemm": (*a, *b, ONE),
        "w4a16_gemm": (x, *b, ONE),
        "argmax_head": (*a, *b, ONE),
        "combine": (x, 2),
    }


@pytest.mark.parametrize("name", op_samples())
def test_op_has_a_schema_and_a_fake_that_agree_with_it(name):
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(
        getattr(torch.ops.sgl_kernel_nvfp4, name).default,
        op_samples()[name],
        test_utils=tests,
    )


def test_a_workspace_grows_and_is_kept():
    device = torch.device("cpu")
    reserve(device, 100, 10, 10)
    first = workspace(device, 50, 5, 5)
    assert workspace(device, 100, 10, 10) is first
    grown = workspace(device, 200, 5, 5)
    assert grown.partial.numel() >= 200 and grown.arrived.numel() >= 10
    assert not grown.arrived.any()
