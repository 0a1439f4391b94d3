"""The emulator by itself: small PTX programs whose results are known."""

import numpy as np
import pytest
import torch

from nvfp4_proof.compiler import Compiled
from nvfp4_proof.emulator import (
    EmulationError,
    Machine,
    MemoryFault,
    Schedule,
    Unsupported,
)
from nvfp4_proof.emulator.numbers import (
    E4M3,
    decode_bfloat16,
    encode_bfloat16,
    encode_e4m3,
)
from nvfp4_proof.emulator.parse import ParseError, parse
from nvfp4_proof.emulator.warp import matrix_a, matrix_b
from sgl_kernel_nvfp4.launch import Launch

HEADER = """
.visible .entry kernel(.param .u64 kernel_param_0, .param .u64 kernel_param_1)
.reqntid {threads}
{{
.reg .pred %p<9>; .reg .b16 %rs<99>; .reg .b32 %r<99>; .reg .b64 %rd<99>;
ld.param.b64 %rd1, [kernel_param_0];
ld.param.b64 %rd2, [kernel_param_1];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
"""


def run(body, inputs, threads=32, shared=1024, grid=(1,), **schedule):
    """Run ``body`` with an int32 of the input in %r2; %r3 of each thread returns."""
    values = torch.as_tensor(inputs, dtype=torch.int32)
    out = torch.zeros(threads, dtype=torch.int32)
    load = "ld.global.b32 %r2, [%rd4];" if len(values) >= threads else ""
    text = HEADER.format(threads=threads) + load + body
    text += "st.global.b32 [%rd5], %r3; ret; }"
    compiled = Compiled("kernel", text, b"", shared, threads // 32, 120)
    launch = Launch(None, grid, {"a": values, "b": out}, {}, writes=frozenset(("b",)))
    Machine(compiled).run(launch, Schedule(**schedule))
    return out


def unary(instruction, values):
    """``instruction`` with %r2 as its source and %r3 as its result."""
    padded = list(values) + [0] * (32 - len(values))
    return run(instruction, padded)[: len(values)].tolist()


@pytest.mark.parametrize(
    ("instruction", "value", "result"),
    [
        ("add.s32 %r3, %r2, 1;", 2**31 - 1, -(2**31)),
        ("shl.b32 %r3, %r2, 32;", 5, 0),
        ("shr.s32 %r3, %r2, 40;", -5, -1),
        ("shr.u32 %r3, %r2, 1;", -2, 2**31 - 1),
        ("div.s32 %r3, %r2, 2;", -7, -3),
        ("rem.s32 %r3, %r2, 2;", -7, -1),
        ("mul.hi.s32 %r3, %r2, %r2;", 2**20, 2**8),
        ("bfe.u32 %r3, %r2, 4, 8;", 0xABC, 0xAB),
        ("bfe.s32 %r3, %r2, 4, 8;", 0xABC, 0xAB - 256),
        ("prmt.b32 %r3, %r2, 0, 0x4140;", 0x44332211, 0x00220011),
        ("prmt.b32 %r3, %r2, %r2, 0x8888;", 0x80, -1),
        ("lop3.b32 %r3, %r2, 12, 3, 0xEA;", 10, 11),
        ("popc.b32 %r3, %r2;", 0xFF0F, 12),
        ("cvt.s8.s32 %r3, %r2;", 0x1FF, -1),
        ("cvt.u16.u32 %rs1, %r2; cvt.u32.u16 %r3, %rs1;", 0x12345, 0x2345),
        (
            "mov.b32 {%rs1, %rs2}, %r2; mov.b32 %r3, {%rs2, %rs1};",
            0x00010002,
            0x00020001,
        ),
        ("setp.lt.s32 %p1, %r2, 0; selp.b32 %r3, 7, 8, %p1;", -1, 7),
        ("setp.lt.u32 %p1, %r2, 9; selp.b32 %r3, 7, 8, %p1;", -1, 8),
        ("mov.b32 %r3, 1; setp.eq.s32 %p1, %r2, 4; @!%p1 mov.b32 %r3, 2;", 4, 1),
    ],
)
def test_integer_instruction(instruction, value, result):
    assert unary(instruction, [value]) == [result]


def as_bits(*values):
    return np.array(values, np.float32).view(np.int32).tolist()


@pytest.mark.parametrize(
    ("instruction", "value", "result"),
    [
        ("add.f32 %r3, %r2, 0f3F800000;", 1.5, 2.5),
        ("max.f32 %r3, %r2, 0f3F800000, 0f40400000;", 2.0, 3.0),
        ("max.f32 %r3, %r2, 0f3F800000;", float("nan"), 1.0),
        ("fma.rn.f32 %r3, %r2, %r2, 0fBF800000;", 1 + 2**-12, 2**-11 + 2**-24),
        ("cvt.rn.bf16.f32 %rs1, %r2; cvt.f32.bf16 %r3, %rs1;", 1 + 2**-8, 1.0),
        (
            "cvt.rn.bf16.f32 %rs1, %r2; cvt.f32.bf16 %r3, %rs1;",
            1 + 3 * 2**-8,
            1 + 2**-6,
        ),
    ],
)
def test_float_instruction(instruction, value, result):
    assert unary(instruction, as_bits(value)) == as_bits(result)


def test_conversion_to_e2m1_packs_the_first_source_high():
    body = ".reg .b8 b0; cvt.rn.satfinite.e2m1x2.f32 b0, 0fC0C00000, %r2;"
    assert unary(body + "mov.b32 %r3, {b0, b0, b0, b0};", as_bits(0.5)) == [
        int.from_bytes(b"\xf1\xf1\xf1\xf1", "little", signed=True)
    ]


def test_every_e4m3_code_survives_and_others_round_to_even():
    finite = np.array([code for code in range(256) if code & 0x7F != 0x7F], np.uint8)
    assert (encode_e4m3(E4M3[finite]) == finite).all()
    assert encode_e4m3(np.float32([449, 1e9, -1e9, np.nan])).tolist() == [
        0x7E,
        0x7E,
        0xFE,
        0x7F,
    ]
    assert E4M3[encode_e4m3(np.float32([1.0625, 1.1875]))].tolist() == [1.0, 1.25]


def test_bfloat16_rounding_equals_torch():
    values = np.random.default_rng(0).normal(size=4096).astype(np.float32)
    theirs = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    assert (decode_bfloat16(encode_bfloat16(values)) == theirs).all()


def test_butterfly_shuffle_exchanges_neighbours():
    out = run("shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;", range(32))
    assert out.tolist() == [lane ^ 1 for lane in range(32)]


STORE_SHARED = "shl.b32 %r4, %r1, 2; st.shared.b32 [%r4], %r2; "


def test_shared_memory_carries_values_between_warps_across_a_barrier():
    body = STORE_SHARED + "bar.sync 0; xor.b32 %r5, %r4, 128; ld.shared.b32 %r3, [%r5];"
    out = run(body, range(64), threads=64)
    assert out.tolist() == [thread ^ 32 for thread in range(64)]


def test_reading_another_warps_store_without_a_barrier_is_a_race():
    body = STORE_SHARED + "xor.b32 %r5, %r4, 128; ld.shared.b32 %r3, [%r5];"
    with pytest.raises(MemoryFault, match="race"):
        run(body, range(64), threads=64)


def test_overwriting_what_another_warp_read_is_a_race():
    body = (
        STORE_SHARED
        + "bar.sync 0; ld.shared.b32 %r3, [0]; "
        + "st.shared.b32 [%r4], %r3;"
    )
    with pytest.raises(MemoryFault, match="race"):
        run(
            body.replace("[0]", "[%r6]").replace("bar", "mov.b32 %r6, 0; bar"),
            range(64),
            64,
        )


def test_two_warps_that_store_different_values_race():
    body = "mov.b32 %r4, 0; st.shared.b32 [%r4], %r1; mov.b32 %r3, 0;"
    with pytest.raises(MemoryFault, match="race"):
        run(body, range(64), threads=64)


def test_reading_shared_bytes_that_nobody_wrote_is_a_fault():
    with pytest.raises(MemoryFault, match="before they are written"):
        run("shl.b32 %r4, %r1, 2; ld.shared.b32 %r3, [%r4];", range(32))


@pytest.mark.parametrize("offset", [128, -4, 1 << 40])
def test_reading_outside_of_a_tensor_is_a_fault(offset):
    with pytest.raises(MemoryFault, match="global"):
        run(f"add.s64 %rd6, %rd4, {offset}; ld.global.b32 %r3, [%rd6];", range(32))


def test_a_misaligned_access_is_a_fault():
    with pytest.raises(MemoryFault, match="aligned"):
        run("ld.global.b32 %r3, [%rd1+2];", range(32))


def test_reading_an_output_before_it_is_written_is_a_fault():
    with pytest.raises(MemoryFault, match="never written"):
        run("ld.global.b32 %r3, [%rd5];", range(32))


COPY = """
shl.b32 %r4, %r1, 2;
cp.async.ca.shared.global [%r4], [%rd4], 4;
cp.async.commit_group;
{wait}
ld.shared.b32 %r3, [%r4];
"""


def test_a_copy_that_is_waited_for_arrives():
    body = COPY.format(wait="cp.async.wait_group 0;")
    for late in (True, False):
        assert run(body, range(32), late_copies=late).tolist() == list(range(32))


def test_a_copy_that_is_not_waited_for_may_not_have_arrived():
    body = COPY.format(wait="cp.async.wait_group 1;")
    with pytest.raises(MemoryFault, match="before they are written"):
        run(body, range(32), late_copies=True)
    assert run(body, range(32), late_copies=False).tolist() == list(range(32))


def test_a_copy_of_no_bytes_writes_zeros_and_reads_nothing():
    body = COPY.format(wait="cp.async.wait_group 0;").replace(
        "[%rd4], 4;", "[%rd6], 4, 0;"
    )
    out = run("add.s64 %rd6, %rd4, 1048576; " + body, range(32))
    assert not out.any()


def test_atomics_of_all_blocks_add_up():
    body = """
    mov.u32 %r4, %ctaid.x; setp.eq.u32 %p1, %r1, 0;
    @%p1 atom.global.gpu.acq_rel.add.u32 %r5, [%rd1], 1;
    mov.b32 %r3, %r5;
    """
    values = [0] * 32
    first = torch.tensor(values, dtype=torch.int32)
    run(body, first, grid=(5,))
    assert first[0] == 5


def test_blocks_may_branch_apart_but_threads_may_not():
    body = """
    mov.b32 %r3, 1; mov.u32 %r4, %ctaid.x; setp.eq.u32 %p1, %r4, 1;
    @%p1 bra $L__A; mov.b32 %r3, 1;
    $L__A:
    """
    assert run(body, range(32), grid=(3,)).tolist() == [1] * 32
    with pytest.raises(EmulationError, match="part ways"):
        run(body.replace("%ctaid.x", "%tid.x"), range(32))


def test_what_is_not_emulated_says_so():
    with pytest.raises(Unsupported, match="tanh"):
        run("tanh.approx.f32 %r3, %r2;", range(32))
    with pytest.raises(ParseError, match="two widths"):
        parse(HEADER.format(threads=32) + ".reg .b32 x; .reg .b16 x; }")


def fragment_a(lane, register, element, per_register):
    """Row and column of an element of A, from the tables of the PTX ISA."""
    row = lane // 4 + (8 if register in (1, 3) else 0)
    half = per_register * 4
    column = (lane % 4) * per_register + element + (half if register >= 2 else 0)
    return row, column


@pytest.mark.parametrize(("kind", "per_register"), [("e2m1", 8), ("f16", 2)])
def test_fragments_of_a_and_b_follow_the_tables_of_the_isa(kind, per_register):
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, (1, 1, 8, 4, 4), dtype=np.uint32)
    bits &= np.uint32(0x77777777 if kind == "e2m1" else 0x3BFF3BFF)
    a, b = matrix_a(bits, kind), matrix_b(bits[..., :2].copy(), kind)
    step = 32 // per_register
    e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    for lane in range(32):
        for register in range(4):
            word = int(bits[0, 0, lane // 4, lane % 4, register])
            for element in range(per_register):
                raw = word >> step * element & (1 << step) - 1
                value = e2m1[raw] if kind == "e2m1" else np.uint16(raw).view(np.float16)
                row, column = fragment_a(lane, register, element, per_register)
                assert a[0, 0, row, column] == value
                if register < 2:
                    k = (lane % 4) * per_register + element
                    assert b[0, 0, lane // 4, k + register * 4 * per_register] == value
