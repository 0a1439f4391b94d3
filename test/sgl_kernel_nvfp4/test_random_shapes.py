"""Random shapes through the compiled kernels."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvfp4_shapes import KERNELS

from nvfp4_proof.run import run

SHAPE = st.tuples(
    st.integers(1, 130), st.integers(1, 20).map(lambda n: 16 * n), st.integers(1, 80)
)


@pytest.mark.parametrize("kernel", KERNELS)
def test_random_shape_equals_float64(kernel):
    @settings(max_examples=6, deadline=None, derandomize=True)
    @given(shape=SHAPE, late=st.booleans())
    def check(shape, late):
        m, n, k_blocks = shape
        way = "emulator-late" if late else "emulator-early"
        run(KERNELS[kernel](m, n, 16 * k_blocks), way)

    check()
