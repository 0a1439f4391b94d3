"""Bugs put into compiled kernels on purpose, to see whether the emulator notices.

Each mutation edits the PTX of one kernel. Where a kernel compiles so that an edit finds
no place, that is an error: a mutation that does nothing proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from nvfp4_proof.cases import (
    Case,
    argmax_case,
    gemm_case,
    grouped_case,
    quantize_case,
    rmsnorm_case,
    tie_case,
    w4a16_case,
)
from nvfp4_proof.compiler import Compiled, compile_launch
from nvfp4_proof.emulator import (
    EmulationError,
    Machine,
    MemoryFault,
    Schedule,
    Unsupported,
)
from sgl_kernel_nvfp4.config import GemmConfig, QuantizeConfig

Edit = Callable[[str], str]

SMALL = GemmConfig(16, 64, 256, 2, 5)

CASES: dict[str, Callable[[], Case]] = {
    "gemm": lambda: gemm_case(5, 112, 3088, replace(SMALL, split_k=2)),
    "w4a16": lambda: w4a16_case(5, 112, 528, GemmConfig(16, 64, 128, 4, 4)),
    "argmax": lambda: argmax_case(5, 112, 528, SMALL),
    "grouped": lambda: grouped_case(9, 2, 4, 112, 528, SMALL, absent=True),
    "quantize": lambda: quantize_case(5, 1040, QuantizeConfig(1, 1024, 4)),
    "ties": lambda: tie_case(QuantizeConfig(1, 1024, 4)),
    "rmsnorm": lambda: rmsnorm_case(5, 1040, QuantizeConfig(1, 1024, 4)),
}


@dataclass(frozen=True)
class Mutation:
    """equivalent: why the edit changes nothing that can be observed, if it does not."""

    name: str
    kernel: str
    edit: Edit
    equivalent: str = ""


def substitute(pattern: str, replacement: str, number: int = 0, count: int = 1) -> Edit:
    """Replace matches ``number`` ... ``number + count - 1`` of a multi-line pattern."""

    def edit(ptx: str) -> str:
        matches = list(re.finditer(pattern, ptx, re.M))
        chosen = matches[number:][:count] if number >= 0 else matches[number:]
        if not chosen:
            raise LookupError(f"no match {number} of {pattern!r}")
        for match in reversed(chosen):
            text = match.expand(replacement)
            ptx = ptx[: match.start()] + text + ptx[match.end() :]
        return ptx

    return edit


def drop(pattern: str, number: int = 0) -> Edit:
    return substitute(pattern, "", number)


def _in_loop(edit: Edit) -> Edit:
    """Apply ``edit`` to the main loop: from its label to the branch back to it."""

    def whole(ptx: str) -> str:
        match = re.search(
            r"^(\$L__BB0_\d+):(?:(?!^\$L__BB0).|\n)*?bra\s+\1;", ptx, re.M
        )
        if match is None:
            raise LookupError("no main loop")
        return ptx[: match.start()] + edit(match.group()) + ptx[match.end() :]

    return whole


BARRIER = r"bar\.sync\s+0;"
MMA = r"(mma\.sync\S*mxf4nvf4\S*)\s+(\{[^}]*\}), (\{[^}]*\}), (\{[^}]*\}), (\{[^}]*\})"
MMA_SCALES = MMA + r", (%r\d+), (\{[^}]*\}), (%r\d+), (\{[^}]*\});"
A_REGISTERS = r"(mma\.sync\S*mxf4nvf4\S*\s+\{[^}]*\}, \{) (%r\d+), (%r\d+)"

MUTATIONS = (
    Mutation("loop barrier after the wait dropped", "gemm", _in_loop(drop(BARRIER))),
    Mutation("barrier after the loop dropped", "argmax", drop(BARRIER, 7)),
    Mutation(
        "wait leaves one group too many",
        "gemm",
        _in_loop(substitute(r"wait_group\s+\d+;", "wait_group 13;")),
    ),
    Mutation("wait dropped", "gemm", _in_loop(drop(r"cp\.async\.wait_group\s+\d+;"))),
    Mutation(
        "a commit dropped", "gemm", _in_loop(drop(r"cp\.async\.commit_group\s*;"))
    ),
    Mutation(
        "scales of A and B swapped",
        "gemm",
        substitute(MMA_SCALES, r"\1 \2, \3, \4, \5, \8, \7, \6, \9;"),
    ),
    Mutation(
        "scale taken from another thread",
        "gemm",
        substitute(MMA_SCALES, r"\1 \2, \3, \4, \5, \6, \7, \8, { 0, 1 };"),
        equivalent="all four threads of a group hold the scales of its column",
    ),
    Mutation(
        "scales of other rows",
        "gemm",
        _in_loop(
            substitute(
                r"(ld\.shared\.v4\.b32\s+\{[^}]*\}, \[%r\d+\+)\d+\]", r"\g<1>45072]"
            )
        ),
    ),
    Mutation("registers of A swapped", "gemm", substitute(A_REGISTERS, r"\1 \3, \2")),
    Mutation(
        "accumulator restarted",
        "gemm",
        substitute(MMA, r"\1 \2, \3, \4, { 0f00000000, 0f00000000, 0f0, 0f0 }", 9),
    ),
    Mutation("one MMA dropped", "gemm", drop(MMA_SCALES, 5)),
    Mutation(
        "fragment loaded from 16 bytes further",
        "gemm",
        _in_loop(
            substitute(r"(ldmatrix\S*\s+\{[^}]*\}, \[%r\d+)\+?\d*\]", r"\1+16]", 3)
        ),
    ),
    Mutation(
        "copy from 16 bytes further",
        "gemm",
        substitute(r"(cp\.async\.cg\S* \[ \S+ \+ 0 \], \[ %rd\d+ \+ )0", r"\g<1>16", 5),
    ),
    Mutation(
        "copy to 16 bytes further",
        "gemm",
        substitute(r"(cp\.async\.cg\S* \[ %r\d+ \+ )0", r"\g<1>16", 5),
    ),
    Mutation(
        "copy replaced by zeros",
        "gemm",
        substitute(r"(cp\.async\.ca\S* \[[^]]*\], \[[^]]*\], 0x4), %r\d+;", r"\1, 0;"),
    ),
    Mutation(
        "tail of K not masked",
        "gemm",
        _in_loop(
            substitute(
                r"setp\.lt\.s32(\s+%p\d+), (%r\d+), (%r\d+);", r"mov.pred\1, 1;", 0, 9
            )
        ),
    ),
    Mutation(
        "mask of the tail one word too long",
        "gemm",
        _in_loop(
            substitute(
                r"setp\.lt\.s32(\s+%p\d+), (%r\d+), (%r\d+);",
                r"setp.le.s32\1, \2, \3;",
                0,
                9,
            )
        ),
    ),
    Mutation(
        "rows not clamped",
        "gemm",
        substitute(r"min\.s32\s+(%r\d+), (%r\d+), %r\d+;", r"mov.b32 \1, \2;", 1, 14),
    ),
    Mutation(
        "first to arrive adds the parts",
        "gemm",
        substitute(r"setp\.ne\.b32(\s+%p\d+, %r\d+), 1;", r"setp.ne.b32\1, 0;"),
    ),
    Mutation(
        "arrival counted twice",
        "gemm",
        substitute(r"(mov\.b32\s+%r\d+), 1;\n(.*\n)*?(.*atom)", r"\1, 2;\n\3"),
    ),
    Mutation(
        "counter not reset",
        "gemm",
        drop(r"@%p\d+ st\.global\.b32 \[[^]]*\], \{[^}]*\};", -1),
    ),
    Mutation(
        "parts read from the wrong place",
        "gemm",
        substitute(r"(ld\.global\.cg\S* \{[^}]*\}, \[ %rd\d+ \+ )0", r"\g<1>16"),
    ),
    Mutation("a part is not added", "gemm", drop(r"ld\.global\.cg[^;]*;", 5)),
    Mutation(
        "output column shifted",
        "gemm",
        substitute(r"(@%p\d+ st\.global\.v4\.b32 \[ %rd\d+ \+ )0", r"\g<1>16"),
    ),
    Mutation(
        "part of the output not stored", "gemm", drop(r"@%p\d+ st\.global\.v4[^;]*;")
    ),
    Mutation(
        "output mask too long",
        "gemm",
        substitute(
            r"and\.pred(\s+%p\d+), (%p\d+), (%p\d+);", r"or.pred\1, \2, \3;", 0, 99
        ),
    ),
    Mutation(
        "sign of a weight lost", "w4a16", substitute("0x80008000|-2147450880", "0x8000")
    ),
    Mutation(
        "bytes of a weight swapped",
        "w4a16",
        substitute(r"prmt\.b32 x, (%r\d+), 0, 0x4140;", r"prmt.b32 x, \1, 0, 0x4041;"),
    ),
    Mutation(
        "weight scaled twice",
        "w4a16",
        substitute(
            r"mul\.bf16\s+(%rs\d+), (%rs\d+), (%rs\d+);", r"mul.bf16 \1, \3, \3;"
        ),
    ),
    Mutation(
        "least logit wins",
        "argmax",
        substitute(r"(?<!relaxed\.)max\.s64", "min.s64", 0, 99),
    ),
    Mutation(
        "columns beyond the vocabulary compete",
        "argmax",
        substitute(
            r"setp\.lt\.s32(\s+%p\d+), (%r\d+), (%r\d+);", r"mov.pred\1, 1;", -8, 8
        ),
        equivalent="clamped columns repeat the last one with a greater index, which "
        "loses every tie",
    ),
    Mutation("keys not reset", "argmax", drop(r"@%p\d+ st\.global\.b64[^;]*;", -1)),
    Mutation(
        "rows of another token",
        "grouped",
        substitute(r"shr\.s32(\s+%r\d+), (%r\d+), 1;", r"mov.b32\1, \2;", 0, 99),
    ),
    Mutation(
        "absent expert computed",
        "grouped",
        substitute(r"setp\.gt\.s32(\s+%p\d+), (%r\d+), -1;", r"setp.gt.s32\1, \2, -2;"),
    ),
    Mutation(
        "nibbles swapped",
        "quantize",
        substitute(
            r"(cvt\.rn\.satfinite\.e2m1x2\.f32 \w+), (%\w+), (%\w+);", r"\1, \3, \2;"
        ),
    ),
    Mutation(
        "maximum over half of a block",
        "quantize",
        substitute(
            r"shfl\.sync\.bfly\.b32([^;]*), 1, 31, -1;",
            r"shfl.sync.bfly.b32\1, 2, 31, -1;",
        ),
    ),
    Mutation(
        "quotient not corrected",
        "ties",
        substitute(
            r"setp\.lt\.f32(\s+%p\d+), (%r\d+), 0f44800000;", r"mov.pred\1, 0;", 0, 99
        ),
    ),
    Mutation(
        "scale not limited to 448",
        "quantize",
        substitute(r"setp\.gt\.f32(\s+%p\d+), (%r\d+), 0f43E00000;", r"mov.pred\1, 0;"),
        equivalent="the conversion to e4m3 saturates by itself (.satfinite)",
    ),
    Mutation(
        "sum of squares over half of the row",
        "rmsnorm",
        drop(r"st\.shared\S* \[[^]]*\], [^;]*;"),
    ),
    Mutation(
        "residual not stored", "rmsnorm", drop(r"@%p\d+ st\.global\.v4\.b32[^;]*;", 0)
    ),
    Mutation("barrier of the reduction dropped", "rmsnorm", drop(BARRIER, 0)),
)


def mutate(mutation: Mutation, arch: int = 120) -> tuple[Case, Compiled]:
    """A case of the kernel and its compiled form with the mutation in it."""
    case = CASES[mutation.kernel]()
    compiled = compile_launch(case.launch, arch)
    ptx = mutation.edit(compiled.ptx)
    if ptx == compiled.ptx:
        raise LookupError(f"{mutation.name}: the edit changes nothing")
    return case, replace(compiled, ptx=ptx)


def caught(mutation: Mutation) -> str:
    """How the emulator notices the mutation; empty if it does not."""
    for late_copies in (True, False):
        case, compiled = mutate(mutation)
        try:
            memory = Machine(compiled).run(case.launch, Schedule(late_copies))
            for tensor in case.written:
                assert not memory.unwritten(tensor), "output not written"
            case.check()
        except Unsupported as error:
            raise LookupError(f"{mutation.name}: {error}") from error
        except (AssertionError, EmulationError, MemoryFault) as finding:
            return f"{type(finding).__name__}: {finding}"
    return ""


def original_passes(kernel: str) -> None:
    """Raise unless the kernel without any mutation passes the same checks."""
    for late_copies in (True, False):
        case = CASES[kernel]()
        memory = Machine(compile_launch(case.launch)).run(
            case.launch, Schedule(late_copies)
        )
        assert all(not memory.unwritten(tensor) for tensor in case.written)
        case.check()
