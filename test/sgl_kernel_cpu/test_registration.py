"""Every operator's schema and fake agree with what it does."""

import pytest
import torch

ops = torch.ops.sgl_kernel
TOKENS, HEADS, KV_HEADS, DIM, HIDDEN = 3, 4, 2, 8, 16


def cache():
    return torch.randn(20, KV_HEADS, DIM)


def attention_arguments():
    rows = torch.arange(20, dtype=torch.int32).view(2, 10)
    return rows, torch.tensor([0, 1]), torch.tensor([5, 4])


def delta_rule_arguments(num_tokens):
    return {
        "A_log": torch.randn(HEADS),
        "dt_bias": torch.randn(HEADS),
        "q": torch.randn(1, num_tokens, KV_HEADS, DIM),
        "k": torch.randn(1, num_tokens, KV_HEADS, DIM),
        "v": torch.randn(1, num_tokens, HEADS, DIM),
        "a": torch.randn(num_tokens, HEADS),
        "b": torch.randn(num_tokens, HEADS),
        "initial_state_source": torch.randn(4, HEADS, DIM, DIM),
        "initial_state_indices": torch.tensor([2, 0]),
        "cu_seqlens": torch.tensor([0, num_tokens // 2, num_tokens]),
        "use_qk_l2norm_in_kernel": True,
    }


def x(*shape):
    return torch.randn(*shape)


CALLS = {
    "silu_and_mul_cpu": lambda: ((x(TOKENS, HIDDEN),), {}),
    "gelu_and_mul_cpu": lambda: ((x(TOKENS, HIDDEN),), {}),
    "gelu_tanh_and_mul_cpu": lambda: ((x(TOKENS, HIDDEN),), {}),
    "fused_sigmoid_mul_cpu": lambda: ((x(TOKENS, HIDDEN), x(TOKENS, HIDDEN)), {}),
    "rmsnorm_cpu": lambda: ((x(TOKENS, HIDDEN), x(HIDDEN), 1e-6), {}),
    "gemma_rmsnorm_cpu": lambda: ((x(TOKENS, HIDDEN), x(HIDDEN), 1e-6), {}),
    "fused_add_rmsnorm_cpu": lambda: (
        (x(TOKENS, HIDDEN), x(TOKENS, HIDDEN), x(HIDDEN), 1e-6),
        {},
    ),
    "gemma_fused_add_rmsnorm_cpu": lambda: (
        (x(TOKENS, HIDDEN), x(TOKENS, HIDDEN), x(HIDDEN), 1e-6),
        {},
    ),
    "fused_rmsnorm_gated_cpu": lambda: (
        (x(TOKENS, HIDDEN), x(HIDDEN), x(TOKENS, HIDDEN), 1e-6),
        {},
    ),
    "layernorm_cpu": lambda: ((x(TOKENS, HIDDEN), x(HIDDEN), None, 1e-6), {}),
    "fused_qk_gemma_rmsnorm_cpu": lambda: (
        (x(TOKENS, HEADS * DIM), x(TOKENS, KV_HEADS * DIM), x(DIM), x(DIM), 1e-6, DIM),
        {},
    ),
    "fused_qk_gemma_rmsnorm_with_gate_cpu": lambda: (
        (
            x(TOKENS, 2 * HEADS * DIM),
            x(TOKENS, KV_HEADS * DIM),
            x(DIM),
            x(DIM),
            1e-6,
            DIM,
            HEADS,
        ),
        {},
    ),
    "weight_packed_linear": lambda: (
        (x(TOKENS, HIDDEN), x(6, HIDDEN), x(6), True),
        {},
    ),
    "fused_input_proj_cpu": lambda: (
        (x(TOKENS, HIDDEN), x(6, HIDDEN), x(4, HIDDEN), True),
        {},
    ),
    "fused_linear_sigmoid_mul": lambda: (
        (x(TOKENS, HIDDEN), x(1, HIDDEN), None, True, x(TOKENS, 6)),
        {},
    ),
    "rotary_embedding_cpu": lambda: (
        (torch.arange(TOKENS), x(TOKENS, 2 * DIM), x(TOKENS, DIM), DIM, x(9, 4), True),
        {},
    ),
    "multimodal_rotary_embedding_cpu": lambda: (
        (
            torch.arange(TOKENS).repeat(3, 1),
            x(TOKENS, 2 * DIM),
            x(TOKENS, DIM),
            DIM,
            x(9, 8),
            [2, 1, 1],
            True,
            True,
        ),
        {},
    ),
    "apply_rotary_pos_emb_cpu": lambda: (
        (x(TOKENS, 2, DIM), x(TOKENS, 2, DIM), x(TOKENS, DIM), x(TOKENS, DIM)),
        {},
    ),
    "store_cache_cpu": lambda: (
        (
            x(2, KV_HEADS, DIM),
            x(2, KV_HEADS, DIM),
            cache(),
            cache(),
            torch.tensor([4, 1]),
            KV_HEADS * DIM,
        ),
        {},
    ),
    "decode_attention_cpu": lambda: (
        (
            x(2, HEADS, DIM),
            cache(),
            cache(),
            1.0,
            1.0,
            x(2, HEADS, DIM),
            x(2, KV_HEADS, DIM),
            x(2, KV_HEADS, DIM),
            torch.tensor([4, 13]),
            torch.empty(1),
            *attention_arguments(),
            0.5,
            0.0,
            False,
            0,
            None,
            None,
        ),
        {},
    ),
    "extend_attention_cpu": lambda: (
        (
            x(4, HEADS, DIM),
            None,
            None,
            x(4, HEADS, DIM),
            cache(),
            cache(),
            1.0,
            1.0,
            *attention_arguments(),
            torch.tensor([2, 2]),
            torch.tensor([0, 2]),
            2,
            0.5,
            0.0,
            False,
            0,
            None,
            None,
            None,
            True,
        ),
        {},
    ),
    "causal_conv1d_fwd_cpu": lambda: (
        (
            x(TOKENS, HIDDEN).t(),
            x(HIDDEN, 4),
            None,
            x(3, HIDDEN, 3),
            torch.tensor([0, TOKENS]),
            torch.tensor([1]),
            torch.tensor([True]),
            True,
        ),
        {},
    ),
    "causal_conv1d_update_cpu": lambda: (
        (x(2, HIDDEN), x(3, HIDDEN, 3), x(HIDDEN, 4), None, True),
        {"conv_state_indices": torch.tensor([2, 0])},
    ),
    "fused_qkvzba_split_reshape_cat_contiguous_cpu": lambda: (
        (x(TOKENS, 4 * 3 + 2 * 10), x(TOKENS, 4), 2, 2, 3, 5),
        {},
    ),
    "fused_gdn_gating_cpu": lambda: (
        (x(HEADS), x(TOKENS, HEADS), x(TOKENS, HEADS), x(HEADS)),
        {},
    ),
    "chunk_gated_delta_rule_cpu": lambda: (
        (
            x(1, TOKENS, KV_HEADS, DIM),
            x(1, TOKENS, KV_HEADS, DIM),
            x(1, TOKENS, HEADS, DIM),
            -torch.rand(1, TOKENS, HEADS),
            torch.rand(1, TOKENS, HEADS),
            x(4, HEADS, DIM, DIM),
            True,
            torch.tensor([0, TOKENS]),
            False,
            True,
            torch.tensor([2]),
        ),
        {},
    ),
    "fused_sigmoid_gating_delta_rule_update_cpu": lambda: (
        (),
        delta_rule_arguments(2),
    ),
    "topk_softmax_cpu": lambda: ((x(TOKENS, HIDDEN), x(TOKENS, 5), 2, True), {}),
    "topk_sigmoid_cpu": lambda: ((x(TOKENS, HIDDEN), x(TOKENS, 5), 2, True), {}),
    "fused_experts_cpu": lambda: (
        (
            x(TOKENS, HIDDEN),
            x(5, 12, HIDDEN),
            x(5, HIDDEN, 6),
            torch.rand(TOKENS, 2),
            torch.randint(0, 5, (TOKENS, 2), dtype=torch.int32),
            False,
            0,
            *([None] * 9),
            True,
            "silu",
        ),
        {},
    ),
    "conv3d_embed_cpu": lambda: ((x(2, 3, 1, 2, 2), x(6, 3, 1, 2, 2), None), {}),
    "flash_attn_varlen_func": lambda: (
        (
            x(TOKENS, 2, DIM),
            x(TOKENS, 2, DIM),
            x(TOKENS, 2, DIM),
            torch.tensor([0, TOKENS]),
            torch.tensor([0, TOKENS]),
            TOKENS,
            TOKENS,
        ),
        {},
    ),
    "murmur_hash32_cpu": lambda: (
        (torch.tensor([5, 6]), torch.arange(2), torch.arange(4)),
        {},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_schema_and_fake_describe_the_operator(name):
    with torch.inference_mode(False):
        arguments, options = CALLS[name]()
        torch.library.opcheck(
            getattr(ops, name).default,
            arguments,
            options,
            test_utils=("test_schema", "test_faketensor"),
        )


def test_verification_writes_what_its_schema_says():
    arguments = delta_rule_arguments(6) | {
        "disable_state_update": True,
        "intermediate_states_buffer": x(3, 3, HEADS, DIM, DIM),
        "intermediate_state_indices": torch.tensor([1, 0]),
        "cache_steps": 3,
        "retrieve_parent_token": torch.tensor([[0, 0, 1], [0, 0, 0]]),
    }
    conv_options = {
        "conv_state_indices": torch.tensor([2, 0]),
        "intermediate_conv_window": x(3, 3, HIDDEN, 3),
        "intermediate_state_indices": torch.tensor([1, 0]),
        "retrieve_next_token": torch.tensor([[1, 2, -1], [1, -1, -1]]),
        "retrieve_next_sibling": torch.tensor([[-1, -1, -1], [-1, 2, -1]]),
        "retrieve_parent_token": torch.zeros(2, 3, dtype=torch.int64),
    }
    conv_arguments = (x(2, HIDDEN, 3), x(3, HIDDEN, 3), x(HIDDEN, 4), None, True)
    checks = ("test_schema", "test_faketensor")
    with torch.inference_mode(False):
        torch.library.opcheck(
            ops.fused_sigmoid_gating_delta_rule_update_cpu.default,
            (),
            arguments,
            test_utils=checks,
        )
        torch.library.opcheck(
            ops.causal_conv1d_update_cpu.default,
            conv_arguments,
            conv_options,
            test_utils=checks,
        )


def test_a_layer_compiles_in_one_graph():
    """Written arguments are seen to be written, and everything has a shape."""

    def layer(hidden, residual, weight, qkv, k_cache, v_cache, out):
        ops.gemma_fused_add_rmsnorm_cpu(hidden, residual, weight, 1e-6)
        q_gate = ops.weight_packed_linear(hidden, qkv, None, True)
        query, key, gate = ops.fused_qk_gemma_rmsnorm_with_gate_cpu(
            q_gate[:, : 2 * HEADS * DIM],
            q_gate[:, 2 * HEADS * DIM :],
            weight[:DIM],
            weight[:DIM],
            1e-6,
            DIM,
            HEADS,
        )
        rows, req_pool_indices, seq_lens = attention_arguments()
        key = key.view(2, KV_HEADS, DIM)
        ops.decode_attention_cpu(
            query.view(2, HEADS, DIM),
            k_cache,
            v_cache,
            1.0,
            1.0,
            out,
            key,
            key,
            torch.tensor([4, 13]),
            torch.empty(1),
            rows,
            req_pool_indices,
            seq_lens,
            0.5,
            0.0,
        )
        flat = out.view(2, -1)
        ops.fused_sigmoid_mul_cpu(flat, gate.view(2, -1))
        return ops.silu_and_mul_cpu(flat)

    def inputs():
        torch.manual_seed(1)
        width = 2 * HEADS * DIM + KV_HEADS * DIM
        return (
            x(2, HIDDEN),
            x(2, HIDDEN),
            x(HIDDEN),
            x(width, HIDDEN),
            cache(),
            cache(),
            x(2, HEADS, DIM),
        )

    with torch.inference_mode(False), torch.no_grad():
        eager, compiled = inputs(), inputs()
        expected = layer(*eager)
        compile_ = torch.compile(layer, backend="aot_eager", fullgraph=True)
        actual = compile_(*compiled)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(compiled, eager)
