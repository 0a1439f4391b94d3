"""The same cases and ops on a GPU, where there is one."""

import pytest
import torch
from nvfp4_shapes import KERNELS

import sgl_kernel_nvfp4 as kernels
from nvfp4_proof.run import run_on_device

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

SHAPES = [(1, 208, 1040), (17, 48, 80), (65, 128, 2048), (130, 2048, 64)]


def portable(case):
    """The case as a device without FP4 instructions can run it."""
    constants = case.launch.constants
    major = torch.cuda.get_device_capability()[0]
    if "NATIVE" in constants:
        fp4 = major == 12 if "BLOCK_M" in constants else major >= 10
        if not fp4:
            constants["NATIVE"] = False
            if "BLOCK_M" in constants:
                constants["BLOCK_K"], constants["EVEN_K"] = 128, False
    return case


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_on_the_device_equals_float64(kernel, shape):
    run_on_device(portable(KERNELS[kernel](*shape)), torch.device("cuda"))


def test_gemm_in_a_cuda_graph_gives_the_same_bits_at_every_replay():
    x = torch.randn(5, 2048, device="cuda").bfloat16()
    w = torch.randn(256, 2048, device="cuda").bfloat16()
    one = torch.ones(1, device="cuda")
    codes, scale = kernels.quantize(w, one)

    def step():
        return kernels.gemm(*kernels.quantize(x, one), codes, scale, one)

    eager = step()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            out = step()
        for _ in range(10):
            out.zero_()
            graph.replay()
            stream.synchronize()
            assert torch.equal(out, eager)
