import torch
from hypothesis import given
from hypothesis import strategies as st

ops = torch.ops.sgl_kernel


def murmur3_x86_32(data):
    """Austin Appleby's reference algorithm, seed 0, on a multiple of four bytes."""
    state, mask = 0, 0xFFFFFFFF
    for i in range(0, len(data), 4):
        word = int.from_bytes(data[i : i + 4], "little")
        word = word * 0xCC9E2D51 & mask
        word = (word << 15 | word >> 17) & mask
        state ^= word * 0x1B873593 & mask
        state = (state << 13 | state >> 19) & mask
        state = (state * 5 + 0xE6546B64) & mask
    state ^= len(data)
    for multiplier, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        state = (state ^ state >> shift) * multiplier & mask
    return state ^ state >> 16


def test_reference_knows_a_published_value():
    assert murmur3_x86_32(b"test") == 0xBA6BD213


@given(
    st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**31 - 1)),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4),
)
def test_hash_of_seed_position_and_column(rows, columns):
    seeds, positions = zip(*rows, strict=True)
    hashed = ops.murmur_hash32_cpu.default(
        torch.tensor(seeds, dtype=torch.uint64),
        torch.tensor(positions),
        torch.tensor(columns),
    )
    assert hashed.dtype == torch.uint32
    assert hashed.tolist() == [
        [
            murmur3_x86_32(
                seed.to_bytes(8, "little")
                + position.to_bytes(4, "little")
                + column.to_bytes(4, "little")
            )
            for column in columns
        ]
        for seed, position in rows
    ]
