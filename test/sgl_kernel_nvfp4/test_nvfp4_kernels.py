"""Every kernel, in the interpreter and as compiled, against float64."""

import pytest
from nvfp4_shapes import KERNELS, SHAPES

from nvfp4_proof.run import WAYS, run, run_all

ROWS = {
    (208, 1040): (1, 17, 65),
    (48, 80): (16, 33),
    (128, 2048): (5,),
    (2048, 64): (2,),
}


ROWS_UP_TO = 130
LAUNCHES_AT_ONCE = 16


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_equals_float64(kernel, way):
    for n, k in ROWS:
        for m in ROWS[n, k]:
            run(KERNELS[kernel](m, n, k), way)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kernel_equals_float64_for_every_m(kernel, shape, way, record_property):
    worst = 0.0
    for first in range(0, ROWS_UP_TO + 1, LAUNCHES_AT_ONCE):
        rows = range(first, min(first + LAUNCHES_AT_ONCE, ROWS_UP_TO + 1))
        cases = (KERNELS[kernel](m, *shape) for m in rows)
        worst = max(worst, *run_all(cases, way))
    record_property("worst_error", worst)
