"""The report changes no resolved argument: the stock wheel is the reference."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from resolver import Resolver

OPTIONS = {
    "--attention-backend": ("triton", "torch_native", "flex_attention", "flashinfer"),
    "--sampling-backend": ("pytorch", "flashinfer"),
    "--page-size": ("1", "16", "64"),
    "--dtype": ("auto", "half", "bfloat16", "float32"),
    "--kv-cache-dtype": ("auto", "bf16", "fp8_e4m3"),
    "--quantization": ("unquant", "fp8", "w8a8_int8"),
    "--context-length": ("512", "4096"),
    "--chunked-prefill-size": ("-1", "128", "4096"),
    "--max-running-requests": ("1", "32"),
    "--max-total-tokens": ("1024",),
    "--mem-fraction-static": ("0.3",),
    "--tp-size": ("1", "2"),
    "--pp-size": ("1", "2"),
    "--attn-dp-size": ("1", "2"),
    "--ep-size": ("1", "2"),
    "--moe-a2a-backend": ("none", "deepep"),
    "--moe-runner-backend": ("auto", "triton"),
    "--schedule-policy": ("fcfs", "lpm"),
    "--schedule-conservativeness": ("0.5",),
    "--cuda-graph-backend-decode": ("full", "disabled"),
    "--cuda-graph-bs-decode": ("1 2 4",),
    "--torch-compile-max-bs": ("8",),
    "--hicache-io-backend": ("kernel", "direct"),
    "--hicache-mem-layout": ("layer_first", "page_first", "page_first_direct"),
    "--hicache-ratio": ("1.5",),
    "--grammar-backend": ("none", "xgrammar", "llguidance"),
    "--tool-call-parser": ("qwen25", "qwen"),
    "--load-format": ("auto", "dummy", "safetensors"),
    "--speculative-algorithm": ("NGRAM", "STANDALONE", "eagle"),
    "--speculative-num-draft-tokens": ("4", "8"),
    "--random-seed": ("7",),
}
SWITCHES = (
    "--disable-radix-cache",
    "--disable-overlap-schedule",
    "--enable-mixed-chunk",
    "--enable-symm-mem",
    "--enable-hierarchical-cache",
    "--enable-torch-compile",
    "--enable-deterministic-inference",
    "--enable-dp-lm-head",
    "--pre-warm-nccl",
    "--debug-cuda-graph",
    "--disable-cuda-graph",
    "--enable-metrics",
    "--skip-server-warmup",
    "--is-embedding",
)

chosen_options = st.dictionaries(
    st.sampled_from(sorted(OPTIONS)), st.integers(0, 11), max_size=6
)
chosen_switches = st.lists(st.sampled_from(SWITCHES), unique=True, max_size=3)


def command_line(options: dict[str, int], switches: list[str]) -> list[str]:
    argv = []
    for name, number in options.items():
        values = OPTIONS[name]
        argv += [name, *values[number % len(values)].split()]
    return argv + switches


def without(resolved: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in resolved.items() if name not in names}


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(options=chosen_options, switches=chosen_switches)
def test_arguments_resolve_as_the_stock_wheel_resolves_them(
    fork: Resolver, stock: Resolver, options: dict[str, int], switches: list[str]
) -> None:
    argv = command_line(options, switches)
    ours, theirs = fork.resolve(argv), stock.resolve(argv)
    assert ours.error == theirs.error
    assert without(ours.resolved, "remap_policy") == theirs.resolved
