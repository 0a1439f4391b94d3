"""Every kernel, in the interpreter and as compiled, against float64."""

import pytest
from nvfp4_shapes import KERNELS, SHAPES

from nvfp4_proof.run import WAYS, run

ROWS = {
    (208, 1040): (1, 17, 65),
    (48, 80): (16, 33),
    (128, 2048): (5,),
    (2048, 64): (2,),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_equals_float64(kernel, way):
    for n, k in ROWS:
        for m in ROWS[n, k]:
            run(KERNELS[kernel](m, n, k), way)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_equals_float64_for_every_m(kernel, shape, way, record_property):
    worst = max(run(KERNELS[kernel](m, *shape), way) for m in range(1, 131))
    record_property("worst_error", worst)
