"""The table of configs and how it is read."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgl_kernel_nvfp4.config import Device
from sgl_kernel_nvfp4.policy import choose_gemm, load_table, moe_block_m
from sgl_kernel_nvfp4.policy.device import GB10, RTX_PRO_6000
from sgl_kernel_nvfp4.policy.table import (
    GEMM_KERNELS,
    TUNED_TABLE_VARIABLE,
    parse_table,
    read_table,
)

H200 = Device((9, 0), 132, 232_448, 233_472)
SMALL_SHARED = Device((12, 0), 36, 50_000, 65_536)

TUNED = {
    "capability": [12, 0],
    "multiprocessors": 188,
    "kernel": "w4a4_gemm",
    "m": 8,
    "n": 5120,
    "k": 5120,
    "config": {
        "block_m": 16,
        "block_n": 32,
        "block_k": 512,
        "num_warps": 2,
        "num_stages": 4,
        "split_k": 2,
    },
}


@settings(max_examples=300, deadline=None)
@given(
    kernel=st.sampled_from(GEMM_KERNELS),
    device=st.sampled_from([RTX_PRO_6000, GB10, H200, SMALL_SHARED]),
    m=st.integers(1, 64),
    n=st.integers(1, 2**14),
    k=st.integers(1, 2**11).map(lambda k: 16 * k),
)
def test_any_shape_gets_a_config_that_fits_the_device(kernel, device, m, n, k):
    config = choose_gemm(kernel, m, n, k, device)
    assert config.shared_bytes(kernel) <= device.shared_per_block
    assert config.native == (device.capability[0] == 12)
    if device is not SMALL_SHARED:
        assert config.block_m >= min(m, 64)


def test_no_rule_for_sm120_wants_more_shared_memory_than_a_block_has():
    for kernel in GEMM_KERNELS:
        for rule in load_table().rules(kernel, RTX_PRO_6000):
            assert rule.config.shared_bytes(kernel) <= 101_376


def test_a_split_fills_the_device_and_only_where_it_must():
    assert choose_gemm("w4a4_gemm", 1, 1024, 8192, RTX_PRO_6000).split_k > 1
    assert choose_gemm("w4a4_gemm", 1, 24064, 5120, RTX_PRO_6000).split_k == 1
    few, many = (
        choose_gemm("w4a4_gemm", 1, 5120, 8192, device).split_k
        for device in (GB10, RTX_PRO_6000)
    )
    assert few < many


def test_the_grouped_gemm_keeps_the_block_size_of_its_rows():
    for block_m in (16, 32, 64):
        config = choose_gemm(
            "w4a4_grouped_gemm", 500, 1024, 2048, RTX_PRO_6000, block_m=block_m
        )
        assert config.block_m == block_m
    assert [moe_block_m(t, 8, 256) for t in (1, 512, 1000, 8192)] == [16, 16, 32, 64]


def table_with(**changes):
    return parse_table(json_table(**changes), "test")


def json_table(**changes):
    from importlib import resources

    source = resources.files("sgl_kernel_nvfp4.policy") / "table.json"
    return json.loads(source.read_text()) | changes


def test_a_tuned_line_wins_for_its_device_and_shape_only():
    table = table_with(tuned=[TUNED])
    shape = (5120, 5120)
    assert choose_gemm("w4a4_gemm", 3, *shape, RTX_PRO_6000, table).block_n == 32
    assert choose_gemm("w4a4_gemm", 9, *shape, RTX_PRO_6000, table).block_n == 64
    assert choose_gemm("w4a4_gemm", 3, *shape, GB10, table).block_n == 64
    assert choose_gemm("w4a4_gemm", 3, 5120, 512, RTX_PRO_6000, table).block_n == 64


def test_a_tuned_line_that_does_not_fit_is_not_taken():
    great = TUNED | {"config": TUNED["config"] | {"block_n": 512}}
    table = table_with(tuned=[great])
    config = choose_gemm("w4a4_gemm", 3, 5120, 5120, RTX_PRO_6000, table)
    assert config.block_n == 64


def test_a_device_before_sm80_is_an_error_that_says_so():
    with pytest.raises(ValueError, match=r"\(7, 5\).*\(8, 0\)"):
        choose_gemm("w4a4_gemm", 1, 64, 64, Device((7, 5), 40, 65_536, 65_536))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema 2, expected 1"),
        ({"tuned": [TUNED | {"config": {"tile": 3}}]}, "unknown keys"),
        ({"tuned": [TUNED | {"config": {"block_m": 16}}]}, "block_n"),
        ({"devices": [{"rules": {}}]}, "no rules for"),
    ],
)
def test_a_bad_table_is_an_error_that_names_the_fault(change, message):
    with pytest.raises(ValueError, match=message):
        table_with(**change)


def test_an_unreadable_table_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(ValueError, match=r"missing\.json"):
        read_table(tmp_path / "missing.json")


def test_the_tuned_table_comes_from_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "tuned.json"
    path.write_text(json.dumps(json_table(tuned=[TUNED])))
    monkeypatch.setenv(TUNED_TABLE_VARIABLE, str(path))
    load_table.cache_clear()
    try:
        assert load_table().tuned[0].n == 5120
    finally:
        load_table.cache_clear()
