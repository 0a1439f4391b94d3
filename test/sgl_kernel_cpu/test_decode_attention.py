import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

ops = torch.ops.sgl_kernel


def decode(cache, query, **options):
    """Run the kernel on tokens that are stored already."""
    output = torch.full((query.shape[0], cache.NUM_HEADS, cache.V_HEAD_DIM), -7.0)
    arguments = {
        "key": None,
        "value": None,
        "loc": None,
        "attn_logits": torch.empty(0),
        "logit_cap": 0.0,
        "req_to_token": cache.req_to_token,
        "req_pool_indices": cache.rows,
        "seq_lens": cache.lens,
        "sm_scale": cache.SCALE,
        "k_scale": 1.0,
        "v_scale": 1.0,
    }
    result = ops.decode_attention_cpu(
        query=query,
        k_cache=cache.keys,
        v_cache=cache.values,
        output=output,
        **(arguments | options),
    )
    assert result is None
    return output


def queries(cache):
    return torch.randn(len(cache.seq_lens), cache.NUM_HEADS, cache.HEAD_DIM)


@given(seq_lens=st.lists(st.integers(1, 30), min_size=1, max_size=8))
def test_every_request_sees_its_own_tokens_only(paged, seq_lens):
    cache = paged(seq_lens)
    cache.poison_the_rest()
    query = queries(cache)
    out = decode(cache, query)
    for i, length in enumerate(seq_lens):
        expected = cache.attend(i, query[i], slice(0, length))
        torch.testing.assert_close(out[i], expected)


@pytest.mark.parametrize("seq_lens", [[6], [6, 6, 6], [3, 9, 4], [1, 30, 2, 1, 1]])
def test_new_token_is_stored_and_seen(paged, seq_lens):
    cache = paged(seq_lens)
    query = queries(cache)
    batch = len(seq_lens)
    key = torch.randn(batch, cache.NUM_KV_HEADS, cache.HEAD_DIM)
    value = torch.randn(batch, cache.NUM_KV_HEADS, cache.V_HEAD_DIM)
    loc = torch.cat([cache.slots(i, n - 1, n) for i, n in enumerate(seq_lens)])
    out = decode(cache, query, key=key, value=value, loc=loc)
    assert torch.equal(cache.keys[loc], key)
    assert torch.equal(cache.values[loc], value)
    for i, length in enumerate(seq_lens):
        expected = cache.attend(i, query[i], slice(0, length))
        torch.testing.assert_close(out[i], expected)


@pytest.mark.parametrize("seq_lens", [[9], [3, 8], [5, 5], [1, 30]])
@pytest.mark.parametrize("window", [1, 4, 100])
def test_sliding_window_counts_the_token_itself(paged, seq_lens, window):
    cache = paged(seq_lens)
    query = queries(cache)
    out = decode(cache, query, sliding_window_size=window)
    for i, length in enumerate(seq_lens):
        seen = slice(max(0, length - window), length)
        torch.testing.assert_close(out[i], cache.attend(i, query[i], seen))


@pytest.mark.parametrize("seq_lens", [[9], [3, 8]])
@pytest.mark.parametrize("cap", [0.0, 0.5])
@pytest.mark.parametrize("has_sinks", [True, False])
def test_capped_logits_and_sinks(paged, seq_lens, cap, has_sinks):
    cache = paged(seq_lens)
    query = queries(cache)
    sinks = torch.randn(cache.NUM_HEADS) if has_sinks else None
    out = decode(cache, query, logit_cap=cap, sinks=sinks)
    for i, length in enumerate(seq_lens):
        expected = cache.attend(i, query[i], slice(0, length), cap, sinks)
        torch.testing.assert_close(out[i], expected)


@pytest.mark.parametrize("seq_lens", [[7], [4, 6], [1, 25]])
def test_encoder_tokens_lead_a_row(paged, seq_lens):
    cache = paged(seq_lens)
    query = queries(cache)
    encoder_lens = torch.arange(3, 3 + len(seq_lens))
    own = decode(cache, query, encoder_lens=encoder_lens)
    cross = decode(cache, query, encoder_lens=encoder_lens, is_cross_attn=True)
    for i, length in enumerate(seq_lens):
        first = 3 + i
        expected = cache.attend(i, query[i], slice(first, first + length))
        torch.testing.assert_close(own[i], expected)
        expected = cache.attend(i, query[i], slice(0, first))
        torch.testing.assert_close(cross[i], expected)


@pytest.mark.parametrize("seq_lens", [[0], [5, 0], [0, 20], [0, 0, 3]])
def test_a_padding_request_of_no_tokens_is_zero(paged, seq_lens):
    cache = paged(seq_lens)
    query = queries(cache)
    out = decode(cache, query)
    for i, length in enumerate(seq_lens):
        if length == 0:
            assert torch.equal(out[i], torch.zeros_like(out[i]))
        else:
            expected = cache.attend(i, query[i], slice(0, length))
            torch.testing.assert_close(out[i], expected)


def test_an_empty_batch_writes_nothing(paged):
    cache = paged([])
    assert decode(cache, queries(cache)).shape[0] == 0


@pytest.mark.parametrize("seq_lens", [[9], [3, 8]])
def test_float8_cache(paged, seq_lens):
    cache = paged(seq_lens)
    quantized = cache.keys.to(torch.float8_e4m3fn), cache.values.to(torch.float8_e4m3fn)
    query = queries(cache)
    cache.keys, cache.values = quantized[0].float() * 0.5, quantized[1].float() * 2
    expected = decode(cache, query)
    cache.keys, cache.values = quantized
    out = decode(cache, query, k_scale=0.5, v_scale=2.0)
    torch.testing.assert_close(out, expected)


def test_bfloat16_stays_close_to_float32(paged):
    cache = paged([20, 13])
    query = queries(cache).to(torch.bfloat16)
    cache.keys, cache.values = cache.keys.bfloat16(), cache.values.bfloat16()
    out = decode(cache, query)
    for i, length in enumerate(cache.seq_lens):
        expected = cache.attend(i, query[i], slice(0, length))
        torch.testing.assert_close(out[i], expected, atol=0.02, rtol=0.02)
