import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.qwen3_5 import modeling_qwen3_5

from sgl_kernel_cpu.mamba import causal_conv1d_fn_cpu, causal_conv1d_update_cpu

ops = torch.ops.sgl_kernel
DIM, WIDTH, NUM_SLOTS = 6, 4, 7


def state_pool(dtype=torch.float32):
    """Slots with channels contiguous, as SGLang lays them out for the CPU."""
    return torch.randn(NUM_SLOTS, WIDTH - 1, DIM).to(dtype).transpose(1, 2)


def convolve(window, tokens, weight, bias):
    """A chain's outputs [num_tokens, dim] after window [dim, width - 1], in float64."""
    history = torch.cat((window.double(), tokens.double().t()), dim=1)
    out = F.conv1d(
        history[None],
        weight.double()[:, None],
        None if bias is None else bias.double(),
        groups=DIM,
    )
    return F.silu(out)[0].t(), history[:, -(WIDTH - 1) :]


def weights(has_bias):
    return torch.randn(DIM, WIDTH), torch.randn(DIM) if has_bias else None


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    has_bias=st.booleans(),
    padding=st.integers(0, 2),
)
def test_prompts_continue_their_own_slot(lengths, has_bias, padding):
    weight, bias = weights(has_bias)
    states, slots = state_pool(), torch.randperm(NUM_SLOTS)[: len(lengths)]
    before = states.clone()
    continued = torch.rand(len(lengths)) < 0.5
    tokens = torch.randn(sum(lengths) + padding, DIM)
    bounds = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    out = causal_conv1d_fn_cpu(
        tokens.t(),
        weight,
        bias,
        activation="silu",
        conv_states=states,
        has_initial_state=continued,
        cache_indices=slots.to(torch.int32),
        query_start_loc=bounds,
        seq_lens_cpu=lengths,
    ).t()
    assert out.shape == tokens.shape
    expected_states = before.clone()
    for i, slot in enumerate(slots.tolist()):
        if lengths[i] == 0:
            continue
        part = slice(bounds[i], bounds[i + 1])
        window = before[slot] if continued[i] else torch.zeros(DIM, WIDTH - 1)
        expected, last = convolve(window, tokens[part], weight, bias)
        torch.testing.assert_close(out[part], expected.float())
        expected_states[slot] = last
    torch.testing.assert_close(states, expected_states)


def test_a_whole_prompt_equals_transformers():
    weight, _ = weights(False)
    x = torch.randn(1, DIM, 9)
    expected = modeling_qwen3_5.causal_conv1d_fn(x, weight, activation="silu")
    out = ops.causal_conv1d_fwd_cpu(x, weight, None, None, None, None, None, True)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("silu", [True, False])
def test_activation_is_optional(silu):
    weight, bias = weights(True)
    x = torch.randn(2, DIM, 5)
    plain = F.conv1d(F.pad(x, (WIDTH - 1, 0)), weight[:, None], bias, groups=DIM)
    expected = F.silu(plain) if silu else plain
    out = ops.causal_conv1d_fwd_cpu(x, weight, bias, None, None, None, None, silu)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("has_bias", [True, False])
def test_decode_advances_every_window_by_its_token(batch, has_bias):
    weight, bias = weights(has_bias)
    states = torch.randn(9, WIDTH - 1, DIM).transpose(1, 2)
    before, slots = states.clone(), torch.randperm(9)[:batch]
    x = torch.randn(batch, DIM)
    out = causal_conv1d_update_cpu(
        x, states, weight, bias, "silu", conv_state_indices=slots.to(torch.int32)
    )
    for i, slot in enumerate(slots.tolist()):
        expected, last = convolve(before[slot], x[i : i + 1], weight, bias)
        torch.testing.assert_close(out[i], expected[0].float())
        before[slot] = last
    torch.testing.assert_close(states, before)


def test_decode_equals_transformers():
    weight, bias = weights(True)
    states, x = state_pool(), torch.randn(NUM_SLOTS, DIM)
    reference = states.clone()
    expected = modeling_qwen3_5.causal_conv1d_update(
        x.unsqueeze(-1), reference, weight, bias, "silu"
    )
    out = causal_conv1d_update_cpu(x, states, weight, bias, "silu")
    torch.testing.assert_close(out, expected.squeeze(-1))
    torch.testing.assert_close(states, reference)


def verify_inputs(batch, num_tokens):
    x = torch.randn(batch, num_tokens, DIM).transpose(1, 2)
    buffer = torch.full((5, num_tokens, DIM, WIDTH - 1), -7.0)
    return x, buffer, torch.randperm(5)[:batch].to(torch.int32)


@pytest.mark.parametrize("batch", [1, 4])
def test_verify_saves_the_window_after_every_token(batch):
    weight, bias = weights(True)
    states = state_pool()
    before = states.clone()
    slots = torch.randperm(NUM_SLOTS)[:batch].to(torch.int32)
    x, buffer, rows = verify_inputs(batch, 4)
    out = causal_conv1d_update_cpu(
        x,
        states,
        weight,
        bias,
        "silu",
        conv_state_indices=slots,
        intermediate_conv_window=buffer,
        intermediate_state_indices=rows,
    )
    assert out.stride() == x.stride()
    for i in range(batch):
        expected, last = convolve(before[slots[i]], x[i].t(), weight, bias)
        torch.testing.assert_close(out[i].t(), expected.float())
        torch.testing.assert_close(states[slots[i]], last.float())
        for token in range(4):
            tokens = x[i, :, : token + 1].t()
            _, after = convolve(before[slots[i]], tokens, weight, bias)
            torch.testing.assert_close(buffer[rows[i], token], after.float())


node_parents = st.integers(1, 9).flatmap(
    lambda n: st.lists(
        st.tuples(*(st.integers(0, node - 1) for node in range(1, n))),
        min_size=1,
        max_size=3,
    )
)


def links(parents):
    num_nodes = len(parents) + 1
    child, sibling = [-1] * num_nodes, [-1] * num_nodes
    for node in range(num_nodes - 1, 0, -1):
        parent = parents[node - 1]
        sibling[node], child[parent] = child[parent], node
    return child, sibling


@given(node_parents)
def test_each_tree_node_continues_its_parent(trees):
    """Every path from the root is convolved as a chain of its own."""
    weight, bias = weights(True)
    batch, num_nodes = len(trees), len(trees[0]) + 1
    states = state_pool()
    before = states.clone()
    slots = torch.randperm(NUM_SLOTS)[:batch].to(torch.int32)
    x, buffer, rows = verify_inputs(batch, num_nodes)
    child, sibling = zip(*map(links, trees), strict=True)
    parents = torch.full((batch, num_nodes), -7, dtype=torch.int64)
    out = causal_conv1d_update_cpu(
        x,
        states,
        weight,
        bias,
        "silu",
        conv_state_indices=slots,
        intermediate_conv_window=buffer,
        intermediate_state_indices=rows,
        retrieve_next_token=torch.tensor(child),
        retrieve_next_sibling=torch.tensor(sibling),
        retrieve_parent_token=parents,
    )
    assert torch.equal(states, before)
    assert parents[:, 1:].tolist() == [list(tree) for tree in trees]
    for i, tree in enumerate(trees):
        for node in range(num_nodes):
            path = [node]
            while path[0]:
                path.insert(0, tree[path[0] - 1])
            tokens = x[i, :, path].t()
            expected, after = convolve(before[slots[i]], tokens, weight, bias)
            torch.testing.assert_close(out[i, :, node], expected[-1].float())
            torch.testing.assert_close(buffer[rows[i], node], after.float())


@pytest.mark.parametrize("num_tokens", [None, 3])
def test_a_padding_request_writes_nothing(num_tokens):
    weight, bias = weights(True)
    states = state_pool()
    before = states.clone()
    slots = torch.tensor([2, -1, 5], dtype=torch.int32)
    options = {}
    if num_tokens is None:
        x = torch.randn(3, DIM)
    else:
        x, buffer, rows = verify_inputs(3, num_tokens)
        options = {
            "intermediate_conv_window": buffer,
            "intermediate_state_indices": rows,
        }
    out = causal_conv1d_update_cpu(
        x, states, weight, bias, "silu", conv_state_indices=slots, **options
    )
    real = torch.tensor([0, 2])
    alone = causal_conv1d_update_cpu(
        x[real], before[slots[real].long()].clone(), weight, bias, "silu"
    )
    torch.testing.assert_close(out[real], alone)
    idle = [slot for slot in range(NUM_SLOTS) if slot not in (2, 5)]
    assert torch.equal(states[idle], before[idle])
    if num_tokens is not None:
        assert bool((buffer[rows[1]] == -7).all())


def test_an_empty_batch_is_empty():
    weight, _ = weights(False)
    states = state_pool()
    out = causal_conv1d_update_cpu(
        torch.randn(0, DIM),
        states,
        weight,
        None,
        "silu",
        conv_state_indices=torch.empty(0, dtype=torch.int32),
    )
    assert out.shape == (0, DIM)


def test_a_bfloat16_state_rounds_the_window_and_nothing_else():
    weight, _ = weights(False)
    states = state_pool(torch.bfloat16)
    before = states.clone()
    x = torch.randn(NUM_SLOTS, DIM)
    out = causal_conv1d_update_cpu(x, states, weight, None, "silu")
    for i in range(NUM_SLOTS):
        expected, last = convolve(before[i], x[i : i + 1], weight, None)
        torch.testing.assert_close(out[i], expected[0].float())
        assert torch.equal(states[i], last.to(torch.bfloat16))
