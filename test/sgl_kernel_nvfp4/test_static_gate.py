"""Every variant that the table can choose may ship, as its machine code says."""

from dataclasses import replace

import pytest

from nvfp4_proof.compiler import compile_launch
from nvfp4_proof.static_gate import DEVICES, Limits, inspect, violations
from nvfp4_proof.table_launches import Variant, variants
from sgl_kernel_nvfp4.policy import load_table
from sgl_kernel_nvfp4.policy.table import GEMM_KERNELS


def chosen(arch, every_split=False):
    return list(variants(load_table(), DEVICES[arch], every_split))


def check(variant: Variant, arch: int) -> None:
    facts = inspect(compile_launch(variant.case.launch, arch))
    assert violations(facts, variant.limits) == []
    assert facts.shared_bytes <= variant.config.shared_bytes(variant.kernel)


@pytest.mark.parametrize("arch", DEVICES)
@pytest.mark.parametrize(
    "number", range(len(chosen(120))), ids=lambda number: chosen(120)[number].name
)
def test_variant_may_ship(number, arch):
    variant = chosen(arch)[number]
    if arch == 121 and "tail" in variant.name:
        pytest.skip("the same PTX as on SM120; checked by -m exhaustive")
    check(variant, arch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("arch", DEVICES)
def test_every_variant_and_split_may_ship(arch):
    for variant in chosen(arch, every_split=True):
        check(variant, arch)


@pytest.mark.parametrize("arch", DEVICES)
def test_every_config_of_the_table_is_a_variant_with_the_limits_of_its_use(arch):
    limits = {
        (variant.kernel, replace(variant.config, split_k=1)): variant.limits
        for variant in chosen(arch)
    }
    assert DEVICES[arch].shared_per_block == 101_376
    for kernel in GEMM_KERNELS:
        for rule in load_table().rules(kernel, DEVICES[arch]):
            limit = limits[kernel, rule.config]
            assert limit.native == (kernel != "w4a16_gemm")
            if limit.native:
                prefill = rule.config.block_n >= 128
                assert limit.instructions_per_mma == (4.0 if prefill else 7.0)


def test_a_variant_that_is_not_native_is_refused():
    variant = chosen(120)[0]
    launch = variant.case.launch
    launch.constants.update(NATIVE=False, BLOCK_K=128)
    found = violations(inspect(compile_launch(launch)), variant.limits)
    assert any("native" in reason for reason in found)


def test_a_limit_that_is_exceeded_is_reported():
    variant = chosen(120)[0]
    facts = inspect(compile_launch(variant.case.launch))
    strict = Limits(instructions_per_mma=2.0, code_bytes=10**6)
    found = violations(facts, strict)
    assert len(found) == 2
    assert "instructions for each MMA" in found[0] and "16 bytes" in found[1]
