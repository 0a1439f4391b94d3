import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgl_kernel_cpu.cache import gather_rows

ops = torch.ops.sgl_kernel


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.float8_e4m3fn]
)
@pytest.mark.parametrize("num_tokens", [0, 1, 5])
def test_rows_are_stored_in_their_slots(num_tokens, dtype, index_dtype):
    def rows(count):
        return torch.randint(0, 200, (count, 2, 4)).to(dtype)

    k, v, k_cache, v_cache = rows(num_tokens), rows(num_tokens), rows(20), rows(20)
    expected_k, expected_v = k_cache.float(), v_cache.float()
    slots = torch.randperm(20)[:num_tokens]
    for i, slot in enumerate(slots.tolist()):
        expected_k[slot], expected_v[slot] = k[i].float(), v[i].float()
    ops.store_cache_cpu(k, v, k_cache, v_cache, slots.to(index_dtype), 8)
    assert torch.equal(k_cache.float(), expected_k)
    assert torch.equal(v_cache.float(), expected_v)


def test_a_float8_cache_is_scaled_where_it_is_read():
    cache = torch.randn(6, 2, 4).to(torch.float8_e4m3fn)
    slots = torch.tensor([[3, 1], [0, 5]])
    rows = gather_rows(cache, slots, torch.float32, 0.5)
    assert torch.equal(rows, cache.float()[slots] * 0.5)


@given(st.lists(st.integers(0, 7), max_size=6, unique=True), st.integers(0, 7))
def test_moved_rows_are_read_before_any_is_written(targets, shift):
    buffers = [torch.randn(8, 3), torch.randn(8, 2, 2, dtype=torch.bfloat16)]
    targets = torch.tensor(targets, dtype=torch.int64)
    sources = (targets + shift) % 8
    expected = [buffer.clone() for buffer in buffers]
    for before, after in zip(buffers, expected, strict=True):
        after[targets] = before[sources]
    ops.copy_all_layer_kv_cache_cpu(
        torch.tensor([b.data_ptr() for b in buffers], dtype=torch.uint64),
        torch.tensor([b[0].nbytes for b in buffers], dtype=torch.int64),
        targets,
        sources,
    )
    for buffer, after in zip(buffers, expected, strict=True):
        assert torch.equal(buffer, after)
