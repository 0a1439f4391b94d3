"""The order in which programs run does not show in the result."""

import pytest
import torch

from nvfp4_proof.cases import argmax_case, gemm_case, w4a16_case
from nvfp4_proof.compiler import compile_launch
from nvfp4_proof.emulator import Schedule
from nvfp4_proof.run import emulate, machine
from sgl_kernel_nvfp4.config import GemmConfig

MAKERS = {
    "gemm": lambda: gemm_case(3, 112, 2080, GemmConfig(16, 64, 256, 2, 5, split_k=8)),
    "w4a16": lambda: w4a16_case(3, 112, 1040, GemmConfig(16, 64, 128, 4, 4, split_k=4)),
    "argmax": lambda: argmax_case(20, 208, 528, GemmConfig(16, 64, 256, 2, 5)),
}


@pytest.mark.parametrize("kernel", MAKERS)
def test_every_order_of_blocks_gives_the_same_bits(kernel):
    results = []
    for order in (None, 1, 2, 3):
        case = MAKERS[kernel]()
        emulate([case], Schedule(order=order))
        case.check()
        results.append([tensor.clone() for tensor in case.written])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_a_workspace_serves_many_launches():
    case = MAKERS["gemm"]()
    emulator = machine(compile_launch(case.launch))
    first = None
    for _ in range(3):
        case.written[0].fill_(float("nan"))
        emulator.run(case.launch)
        case.check()
        first = case.written[0].clone() if first is None else first
        assert torch.equal(first, case.written[0])


def test_parts_are_stored_before_the_arrival_and_read_past_l1():
    """The emulator has no caches, so this order is read off the PTX."""
    ptx = compile_launch(MAKERS["gemm"]().launch).ptx
    arrival = ptx.index("atom.global.gpu.acq_rel.add")
    before, after = ptx[:arrival], ptx[arrival:]
    assert before.rindex("bar.sync") > before.rindex("st.global.v4")
    assert "bar.sync" in after[: after.index("ld.global.cg")]
    assert "ld.global.v" not in after
