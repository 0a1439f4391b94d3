import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgl_kernel_cpu import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)

NUM_ROWS, POOL_LEN = 5, 24

ranges = st.lists(
    st.tuples(st.integers(0, POOL_LEN), st.integers(0, POOL_LEN)).map(sorted),
    min_size=1,
    max_size=4,
)


def pool():
    """Slots that are all different, so that a misplaced one is seen."""
    return torch.randperm(NUM_ROWS * POOL_LEN).view(NUM_ROWS, POOL_LEN).to(torch.int32)


def bounds(ranges, dtype=torch.int64):
    starts, ends = zip(*ranges, strict=True)
    return torch.tensor(starts, dtype=dtype), torch.tensor(ends, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@given(ranges)
def test_slots_are_written_and_read_request_by_request(dtype, ranges):
    before = pool()
    rows = torch.randperm(NUM_ROWS)[: len(ranges)]
    starts, ends = bounds(ranges, dtype)
    total = int((ends - starts).sum())
    slots = torch.arange(1000, 1000 + total)
    after, expected = before.clone(), before.clone()
    assign_req_to_token_pool_cpu(rows.to(dtype), after, starts, ends, slots, POOL_LEN)
    offset = 0
    for row, (start, end) in zip(rows.tolist(), ranges, strict=True):
        expected[row, start:end] = slots[offset : offset + end - start]
        offset += end - start
    assert torch.equal(after, expected)

    read = torch.full((total + 2,), -7)
    assign_extend_cache_locs_cpu(rows, after, starts, ends, read, POOL_LEN)
    assert torch.equal(read[:total], slots)
    assert read[total:].tolist() == [-7, -7]


def test_no_requests_write_nothing():
    before = pool()
    none = torch.empty(0, dtype=torch.int64)
    after = before.clone()
    assign_req_to_token_pool_cpu(none, after, none, none, none, POOL_LEN)
    assert torch.equal(after, before)


@pytest.mark.parametrize(("topk", "num_steps"), [(1, 1), (1, 3), (4, 2)])
def test_draft_slots_follow_the_tokens(topk, num_steps):
    req_to_token, rows = pool(), torch.tensor([4, 0, 2])
    seq_lens = torch.tensor([5, 0, 16])
    count = topk * num_steps
    out = torch.empty(3 * count, dtype=torch.int64)
    assign_draft_cache_locs_contiguous_cpu(
        rows, req_to_token, seq_lens, out, POOL_LEN, topk, num_steps
    )
    expected = [
        req_to_token[row, n : n + count].tolist()
        for row, n in zip(rows, seq_lens, strict=True)
    ]
    assert out.view(3, count).tolist() == expected


def test_wrong_dtypes_and_sizes_are_named():
    rows, seq_lens = torch.tensor([0]), torch.tensor([3])
    out = torch.empty(2, dtype=torch.int64)

    def assign(rows=rows, table=None, seq_lens=seq_lens, out=out):
        table = pool() if table is None else table
        assign_draft_cache_locs_contiguous_cpu(
            rows, table, seq_lens, out, POOL_LEN, 1, 2
        )

    with pytest.raises(RuntimeError, match=r"seq_lens must be torch\.int64"):
        assign(seq_lens=seq_lens.to(torch.int32))
    with pytest.raises(RuntimeError, match=r"req_to_token must be torch\.int32"):
        assign(table=pool().to(torch.int64))
    with pytest.raises(RuntimeError, match="has 1 elements"):
        assign(out=out[:-1])
    with pytest.raises(RuntimeError, match=r"input_ids must be torch\.int64"):
        rotate_input_ids_cpu(torch.zeros(2, dtype=torch.int32), rows, seq_lens, rows)


@pytest.mark.parametrize("topk", [1, 4])
@pytest.mark.parametrize("num_steps", [1, 3])
def test_a_candidate_decodes_over_the_tokens_and_its_own_drafts(topk, num_steps):
    req_to_token, rows = pool(), torch.tensor([3, 1, 4, 0])
    seq_lens = torch.tensor([9, 0, 3, POOL_LEN - topk * num_steps])
    out = build_draft_decode_metadata_cpu(
        req_to_token, rows, seq_lens, topk, num_steps, POOL_LEN
    )
    assert out.shape == (4 * topk, POOL_LEN) and out.dtype == torch.int32
    for b, (row, n) in enumerate(zip(rows.tolist(), seq_lens.tolist(), strict=True)):
        for k in range(topk):
            first = n + k * num_steps
            drafts = req_to_token[row, first : first + num_steps]
            expected = torch.cat((req_to_token[row, :n], drafts))
            assert torch.equal(out[b * topk + k, : n + num_steps], expected)


@pytest.mark.parametrize("flat", [True, False])
def test_the_bonus_token_is_the_last_accepted(flat):
    accepted = torch.arange(12, dtype=torch.int32).view(3, 4)
    bonus = torch.empty(3, dtype=torch.int32)
    tokens = accepted.flatten() if flat else accepted
    fill_bonus_tokens_cpu(tokens, torch.tensor([1, 4, 2], dtype=torch.int32), bonus, 4)
    assert bonus.tolist() == [0, 7, 9]


def test_slots_of_accepted_tokens_move_to_the_front():
    accept_index = torch.tensor([[0, 1, -1], [3, 5, -1], [-1, -1, -1]])
    slots = torch.arange(100, 106)
    front = torch.full((9,), -7)
    fill_accept_out_cache_loc_cpu(accept_index.to(torch.int32), slots, front)
    assert front.tolist() == [100, 101, 103, 105, -7, -7, -7, -7, -7]


@pytest.mark.parametrize("select", [None, [2, 4, 8]])
def test_tokens_shift_left_and_the_next_one_is_appended(select):
    lengths = torch.tensor([4, 1, 0, 4])
    starts = lengths.cumsum(0) - lengths
    tokens = torch.arange(10, 19)
    topk_index = torch.tensor([[100], [200], [300], [400]])
    index = None if select is None else torch.tensor([2, 4, -1, 8])
    rotate_input_ids_cpu(tokens, starts, lengths, topk_index, index)
    if select is None:
        expected = [11, 12, 13, 100, 200, 16, 17, 18, 400]
    else:
        expected = [11, 12, 100, 13, 200, 16, 17, 18, 400]
    assert tokens.tolist() == expected
