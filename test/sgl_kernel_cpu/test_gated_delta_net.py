import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.qwen3_5 import modeling_qwen3_5

from sgl_kernel_cpu.mamba import chunk_gated_delta_rule_cpu

ops = torch.ops.sgl_kernel
KEY_HEADS, HEADS, KEY_DIM, VALUE_DIM, NUM_SLOTS = 2, 4, 5, 3, 6


def activations(num_tokens):
    """q, k and v of packed tokens."""
    return (
        torch.randn(1, num_tokens, KEY_HEADS, KEY_DIM),
        torch.randn(1, num_tokens, KEY_HEADS, KEY_DIM),
        torch.randn(1, num_tokens, HEADS, VALUE_DIM),
    )


def state_pool():
    """States as SGLang shapes them, [num_slots, heads, value_dim, key_dim]."""
    return torch.randn(NUM_SLOTS, HEADS, VALUE_DIM, KEY_DIM)


def gates(num_tokens):
    return {
        "A_log": torch.randn(HEADS),
        "dt_bias": torch.randn(HEADS),
        "a": torch.randn(num_tokens, HEADS),
        "b": torch.randn(num_tokens, HEADS),
    }


def log_decay_and_beta(A_log, dt_bias, a, b):
    decay = -A_log.double().exp() * (1 + (a.double() + dt_bias).exp()).log()
    return decay, 1 / (1 + (-b.double()).exp())


def recur(state, q, k, v, decay, beta):
    """One token after another in float64: outputs and the state after each.

    Args:
        state: [heads, value_dim, key_dim].
        q: [num_tokens, key_heads, key_dim], likewise k; v [num_tokens, heads, ...].
    """
    state, outputs, states = state.double(), [], []
    q, k = (
        F.normalize(x.double(), dim=-1, eps=1e-30).repeat_interleave(
            HEADS // KEY_HEADS, dim=1
        )
        for x in (q, k)
    )
    for t in range(q.shape[0]):
        state = state * decay[t].double().exp()[:, None, None]
        read = torch.einsum("hvk,hk->hv", state, k[t])
        write = (v[t].double() - read) * beta[t].double()[:, None]
        state = state + torch.einsum("hv,hk->hvk", write, k[t])
        outputs.append(torch.einsum("hvk,hk->hv", state, q[t]) * KEY_DIM**-0.5)
        states.append(state)
    return torch.stack(outputs).float(), torch.stack(states).float()


def close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)


def test_projection_is_split_into_contiguous_parts():
    qkv_dim, z_dim = 2 * KEY_HEADS * KEY_DIM + HEADS * VALUE_DIM, HEADS * VALUE_DIM
    qkvz, ba = torch.randn(3, qkv_dim + z_dim), torch.randn(3, 2 * HEADS)
    parts = ops.fused_qkvzba_split_reshape_cat_contiguous_cpu(
        qkvz, ba, KEY_HEADS, HEADS, KEY_DIM, VALUE_DIM
    )
    expected = (
        qkvz[:, :qkv_dim],
        qkvz[:, qkv_dim:].reshape(3, HEADS, VALUE_DIM),
        ba[:, :HEADS],
        ba[:, HEADS:],
    )
    for part, value in zip(parts, expected, strict=True):
        assert part.is_contiguous() and torch.equal(part, value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gating(dtype):
    inputs = gates(5)
    inputs = {name: x.to(dtype) for name, x in inputs.items()}
    decay, beta = log_decay_and_beta(**inputs)
    g, strength = ops.fused_gdn_gating_cpu(**inputs)
    assert g.dtype == torch.float32 and strength.dtype == dtype
    torch.testing.assert_close(g[0], decay.float())
    torch.testing.assert_close(strength[0], beta.to(dtype))


@given(
    lengths=st.lists(
        st.sampled_from([0, 1, 2, 63, 64, 65, 130]), min_size=1, max_size=3
    )
)
def test_prefill_equals_one_token_after_another(lengths):
    total = sum(lengths)
    q, k, v = activations(total)
    g, beta = -torch.rand(1, total, HEADS), torch.rand(1, total, HEADS)
    pool = state_pool()
    before, slots = pool.clone(), torch.randperm(NUM_SLOTS)[: len(lengths)]
    bounds = torch.tensor([0, *lengths]).cumsum(0)
    out, last, before_chunk = chunk_gated_delta_rule_cpu(
        q,
        k,
        v,
        g,
        beta,
        initial_state=pool,
        cu_seqlens=bounds.to(torch.int32),
        head_first=False,
        use_qk_l2norm_in_kernel=True,
        initial_state_indices=slots.to(torch.int32),
    )
    assert last is None
    chunk = 0
    for i, slot in enumerate(slots.tolist()):
        part = slice(bounds[i], bounds[i + 1])
        if not lengths[i]:
            continue
        expected, states = recur(
            before[slot], q[0, part], k[0, part], v[0, part], g[0, part], beta[0, part]
        )
        close(out[0, part], expected)
        starts = [before[slot], *states[63:-1:64]]
        close(before_chunk[0, chunk : chunk + len(starts)], torch.stack(starts))
        chunk += len(starts)
        before[slot] = states[-1]
    assert before_chunk.shape[1] == chunk
    close(pool, before)


@pytest.mark.parametrize("num_tokens", [1, 70])
def test_prefill_equals_transformers(num_tokens):
    q, k, v = activations(num_tokens)
    g, beta = -torch.rand(1, num_tokens, HEADS), torch.rand(1, num_tokens, HEADS)
    pool = torch.zeros(1, HEADS, VALUE_DIM, KEY_DIM)
    out, _, _ = chunk_gated_delta_rule_cpu(
        q, k, v, g, beta, pool, torch.tensor([0, num_tokens])
    )
    group = HEADS // KEY_HEADS
    expected, state = modeling_qwen3_5.torch_chunk_gated_delta_rule(
        q.repeat_interleave(group, 2),
        k.repeat_interleave(group, 2),
        v,
        g,
        beta,
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    close(out, expected)
    close(pool[0].transpose(-1, -2), state[0])


def test_a_padding_sequence_starts_from_zeros_and_leaves_no_state():
    q, k, v = activations(4)
    g, beta = -torch.rand(1, 4, HEADS), torch.rand(1, 4, HEADS)
    pool = state_pool()
    before = pool.clone()
    out, _, _ = chunk_gated_delta_rule_cpu(
        q,
        k,
        v,
        g,
        beta,
        pool,
        torch.tensor([0, 4]),
        initial_state_indices=torch.tensor([-1]),
    )
    zero = torch.zeros(HEADS, VALUE_DIM, KEY_DIM)
    expected, _ = recur(zero, q[0], k[0], v[0], g[0], beta[0])
    close(out[0], expected)
    assert torch.equal(pool, before)


def test_the_operator_returns_the_pool_in_float32():
    q, k, v = activations(3)
    pool = state_pool().to(torch.bfloat16)
    out, states = ops.chunk_gated_delta_rule_cpu(
        query=q,
        key=k,
        value=v,
        g=-torch.rand(1, 3, HEADS),
        beta=torch.rand(1, 3, HEADS),
        initial_state=pool,
        output_final_state=True,
        cu_seqlens=torch.tensor([0, 3]),
        head_first=False,
        use_qk_l2norm_in_kernel=True,
        initial_state_indices=torch.tensor([2]),
    )
    assert out.shape == v.shape
    assert torch.equal(states, pool.float())


def update(q, k, v, inputs, pool, slots, num_requests, **options):
    bounds = torch.arange(num_requests + 1) * (v.shape[1] // max(num_requests, 1))
    return ops.fused_sigmoid_gating_delta_rule_update_cpu(
        q=q,
        k=k,
        v=v,
        initial_state_source=pool,
        initial_state_indices=slots,
        cu_seqlens=bounds.to(torch.int32),
        use_qk_l2norm_in_kernel=True,
        softplus_beta=1.0,
        softplus_threshold=20.0,
        **inputs,
        **options,
    )


@pytest.mark.parametrize(
    "slots", [[3], [4, 0, 2], [5, 4, 3, 2, 1, 0], [-1], [2, -1, 0]]
)
def test_decode_advances_every_state_by_its_token(slots):
    batch = len(slots)
    q, k, v = activations(batch)
    inputs, pool = gates(batch), state_pool()
    decay, beta = log_decay_and_beta(**inputs)
    before = pool.clone()
    out = update(q, k, v, inputs, pool, torch.tensor(slots, dtype=torch.int32), batch)
    assert out.shape == (batch, 1, HEADS, VALUE_DIM)
    for i, slot in enumerate(slots):
        if slot < 0:
            assert torch.equal(out[i], torch.zeros_like(out[i]))
            continue
        part = slice(i, i + 1)
        expected, states = recur(
            before[slot], q[0, part], k[0, part], v[0, part], decay[part], beta[part]
        )
        close(out[i], expected)
        before[slot] = states[0]
    close(pool, before)


@pytest.mark.parametrize("slots", [[3], [4, 0, 2], [2, -1, 0]])
@pytest.mark.parametrize("num_tokens", [1, 2, 4])
def test_verify_saves_the_state_after_every_token(slots, num_tokens):
    batch = len(slots)
    q, k, v = activations(batch * num_tokens)
    inputs, pool = gates(batch * num_tokens), state_pool()
    decay, beta = log_decay_and_beta(**inputs)
    before = pool.clone()
    buffer = torch.full((5, num_tokens + 1, HEADS, VALUE_DIM, KEY_DIM), -7.0)
    rows = torch.randperm(5)[:batch].to(torch.int32)
    out = update(
        q,
        k,
        v,
        inputs,
        pool,
        torch.tensor(slots, dtype=torch.int32),
        batch,
        disable_state_update=True,
        intermediate_states_buffer=buffer,
        intermediate_state_indices=rows,
        cache_steps=num_tokens,
    ).reshape(batch, num_tokens, HEADS, VALUE_DIM)
    assert torch.equal(pool, before)
    for i, slot in enumerate(slots):
        if slot < 0:
            assert bool((buffer[rows[i]] == -7).all())
            continue
        part = slice(i * num_tokens, (i + 1) * num_tokens)
        expected, states = recur(
            before[slot], q[0, part], k[0, part], v[0, part], decay[part], beta[part]
        )
        close(out[i], expected)
        close(buffer[rows[i], :num_tokens], states)
    assert bool((buffer[:, num_tokens] == -7).all())


node_parents = st.integers(1, 9).flatmap(
    lambda n: st.lists(
        st.tuples(*(st.integers(0, node - 1) for node in range(1, n))),
        min_size=1,
        max_size=3,
    )
)


@given(node_parents)
def test_each_tree_node_continues_its_parent(trees):
    """Every path from the root is run as a sequence of its own."""
    batch, num_nodes = len(trees), len(trees[0]) + 1
    q, k, v = activations(batch * num_nodes)
    inputs, pool = gates(batch * num_nodes), state_pool()
    decay, beta = log_decay_and_beta(**inputs)
    slots = torch.randperm(NUM_SLOTS)[:batch]
    buffer = torch.zeros(batch, num_nodes, HEADS, VALUE_DIM, KEY_DIM)
    out = update(
        q,
        k,
        v,
        inputs,
        pool,
        slots.to(torch.int32),
        batch,
        disable_state_update=True,
        intermediate_states_buffer=buffer,
        intermediate_state_indices=torch.arange(batch),
        cache_steps=num_nodes,
        retrieve_parent_token=torch.tensor([[0, *tree] for tree in trees]),
    ).reshape(-1, HEADS, VALUE_DIM)
    for i, tree in enumerate(trees):
        for node in range(num_nodes):
            path = [node]
            while path[0]:
                path.insert(0, tree[path[0] - 1])
            rows = torch.tensor(path) + i * num_nodes
            expected, states = recur(
                pool[slots[i]],
                q[0, rows],
                k[0, rows],
                v[0, rows],
                decay[rows],
                beta[rows],
            )
            close(out[rows[-1]], expected[-1])
            close(buffer[i, node], states[-1])


def test_a_chain_without_a_buffer_advances_the_pool():
    q, k, v = activations(3)
    inputs, pool = gates(3), state_pool()
    decay, beta = log_decay_and_beta(**inputs)
    before = pool.clone()
    out = update(q, k, v, inputs, pool, torch.tensor([4]), 1)
    expected, states = recur(before[4], q[0], k[0], v[0], decay, beta)
    close(out[0], expected)
    close(pool[4], states[-1])


@pytest.mark.parametrize("batch", [1, 3])
def test_square_states_are_stored_by_key_as_the_compiled_kernel_does(batch):
    dim = 4
    q = torch.randn(1, batch, KEY_HEADS, dim)
    v = torch.randn(1, batch, HEADS, dim)
    inputs = gates(batch)
    pool = torch.zeros(NUM_SLOTS, HEADS, dim, dim)
    update(q, q, v, inputs, pool, torch.arange(batch), batch)
    _, beta = log_decay_and_beta(**inputs)
    key = F.normalize(q[0], dim=-1).repeat_interleave(HEADS // KEY_HEADS, dim=1)
    written = torch.einsum("bhk,bhv->bhkv", key, v[0] * beta.float()[..., None])
    torch.testing.assert_close(pool[:batch], written)


def test_uneven_requests_are_an_error():
    q, k, v = activations(5)
    with pytest.raises(ValueError, match="5 tokens do not divide evenly among 2"):
        update(q, k, v, gates(5), state_pool(), torch.tensor([0, 1]), 2)


def test_no_requests_is_empty():
    q, k, v = activations(0)
    slots = torch.empty(0, dtype=torch.int32)
    out = update(q, k, v, gates(0), state_pool(), slots, 0)
    assert out.numel() == 0
