import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

ops = torch.ops.sgl_kernel


def extend(cache, extends, query, **options):
    output = torch.full((query.shape[0], cache.NUM_HEADS, cache.V_HEAD_DIM), -7.0)
    lengths = torch.tensor(extends, dtype=torch.int32)
    arguments = {
        "req_to_token": cache.req_to_token,
        "req_pool_indices": cache.rows,
        "seq_lens": cache.lens,
        "extend_seq_lens": lengths,
        "extend_start_loc": lengths.cumsum(0).to(torch.int32) - lengths,
        "max_len_extend": max(extends, default=0),
        "sm_scale": cache.SCALE,
        "logit_cap": 0.0,
        "k_scale": 1.0,
        "v_scale": 1.0,
    }
    result = ops.extend_attention_cpu(
        q_extend=query,
        k_extend=None,
        v_extend=None,
        o_extend=output,
        k_buffer=cache.keys,
        v_buffer=cache.values,
        **(arguments | options),
    )
    assert result is None
    return output


def queries(cache, extends):
    return torch.randn(sum(extends), cache.NUM_HEADS, cache.HEAD_DIM)


def check(cache, extends, query, out, seen, **options):
    """`seen(request, new_token)` gives the positions that a new token sees."""
    row = 0
    for i, extend_len in enumerate(extends):
        for token in range(extend_len):
            expected = cache.attend(i, query[row], seen(i, token), **options)
            torch.testing.assert_close(out[row], expected)
            row += 1


requests = st.lists(
    st.integers(1, 25).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))),
    min_size=1,
    max_size=5,
)


@given(requests)
def test_new_tokens_see_the_prefix_and_earlier_new_tokens(paged, requests):
    seq_lens, extends = zip(*requests, strict=True)
    cache = paged(list(seq_lens))
    cache.poison_the_rest()
    query = queries(cache, extends)
    out = extend(cache, list(extends), query)

    def seen(request, token):
        return slice(0, seq_lens[request] - extends[request] + token + 1)

    check(cache, extends, query, out, seen)


uniform = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.integers(n, n + 20), min_size=1, max_size=8)
    )
)


@given(uniform)
def test_as_many_new_tokens_for_each_request(paged, uniform):
    num_tokens, seq_lens = uniform
    cache = paged(seq_lens)
    cache.poison_the_rest()
    extends = [num_tokens] * len(seq_lens)
    query = queries(cache, extends)
    out = extend(cache, extends, query)

    def seen(request, token):
        return slice(0, seq_lens[request] - num_tokens + token + 1)

    check(cache, extends, query, out, seen)


@pytest.mark.parametrize("full_mask", [True, False])
@given(uniform)
def test_tree_nodes_see_the_prefix_and_what_the_mask_says(paged, full_mask, uniform):
    num_nodes, seq_lens = uniform
    cache = paged(seq_lens)
    batch = len(seq_lens)
    extends = [num_nodes] * batch
    trees = torch.rand(batch, num_nodes, num_nodes) < 0.5
    trees = (trees & torch.ones(num_nodes, num_nodes).tril().bool()) | torch.eye(
        num_nodes, dtype=torch.bool
    )
    mask = trees.flatten()
    if full_mask:
        mask = torch.cat(
            [
                torch.cat(
                    (torch.ones(num_nodes, n - num_nodes, dtype=torch.bool), tree), 1
                ).flatten()
                for n, tree in zip(seq_lens, trees, strict=True)
            ]
        )
    query = queries(cache, extends)
    out = extend(cache, extends, query, tree_mask=mask)

    def seen(request, node):
        prefix = seq_lens[request] - num_nodes
        nodes = trees[request, node].nonzero().flatten().tolist()
        return [*range(prefix), *(prefix + other for other in nodes)]

    check(cache, extends, query, out, seen)


@pytest.mark.parametrize("window", [1, 3, 50])
def test_sliding_window_counts_the_token_itself(paged, window):
    seq_lens, extends = [12, 7, 5], [4, 7, 1]
    cache = paged(seq_lens)
    query = queries(cache, extends)
    out = extend(cache, extends, query, sliding_window_size=window)

    def seen(request, token):
        last = seq_lens[request] - extends[request] + token
        return slice(max(0, last - window + 1), last + 1)

    check(cache, extends, query, out, seen)


@pytest.mark.parametrize("cap", [0.0, 0.5])
@pytest.mark.parametrize("extends", [[3, 3], [5, 2]])
def test_capped_logits_and_sinks(paged, cap, extends):
    seq_lens = [9, 5]
    cache = paged(seq_lens)
    sinks = torch.randn(cache.NUM_HEADS)
    query = queries(cache, extends)
    out = extend(cache, extends, query, logit_cap=cap, sinks=sinks)

    def seen(request, token):
        return slice(0, seq_lens[request] - extends[request] + token + 1)

    check(cache, extends, query, out, seen, cap=cap, sinks=sinks)


def test_encoder_tokens_lead_a_row(paged):
    seq_lens, extends, encoder = [9, 6], [4, 2], [3, 5]
    cache = paged(seq_lens)
    query = queries(cache, extends)
    encoder_lens = torch.tensor(encoder)
    own = extend(cache, extends, query, encoder_lens=encoder_lens)
    cross = extend(cache, extends, query, encoder_lens=encoder_lens, is_cross_attn=True)

    def seen(request, token):
        first = encoder[request]
        count = seq_lens[request] - extends[request] + token + 1
        return slice(first, first + count)

    check(cache, extends, query, own, seen)
    check(cache, extends, query, cross, lambda request, _: slice(0, encoder[request]))


@pytest.mark.parametrize("extends", [[4, 4], [4, 2]])
def test_without_causality_every_token_is_seen(paged, extends):
    seq_lens = [9, 6]
    cache = paged(seq_lens)
    query = queries(cache, extends)
    out = extend(cache, extends, query, is_causal=False)
    check(cache, extends, query, out, lambda request, _: slice(0, seq_lens[request]))


def test_rows_after_the_last_request_are_left_alone(paged):
    seq_lens, extends = [9, 6], [3, 3]
    cache = paged(seq_lens)
    query = torch.randn(8, cache.NUM_HEADS, cache.HEAD_DIM)
    out = extend(cache, extends, query)

    def seen(request, token):
        return slice(0, seq_lens[request] - extends[request] + token + 1)

    check(cache, extends, query, out, seen)
    assert bool((out[6:] == -7).all())


def test_an_empty_batch_writes_nothing(paged):
    cache = paged([])
    assert extend(cache, [], queries(cache, [])).shape[0] == 0
