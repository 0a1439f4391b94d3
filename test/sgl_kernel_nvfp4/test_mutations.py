"""The emulator notices bugs that are put into compiled kernels."""

import pytest

from nvfp4_proof.mutations import CASES, MUTATIONS, caught, original_passes


@pytest.mark.parametrize("kernel", CASES)
def test_kernel_without_mutation_passes(kernel):
    original_passes(kernel)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation_is_caught_or_equivalent(mutation):
    assert bool(caught(mutation)) != bool(mutation.equivalent)


def test_there_are_enough_mutations_of_enough_kernels():
    real = [mutation for mutation in MUTATIONS if not mutation.equivalent]
    assert len(real) >= 20
    assert {mutation.kernel for mutation in real} == set(CASES)
