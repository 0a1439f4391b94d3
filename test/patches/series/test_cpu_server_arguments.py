"""Patches 903, 914 and 915: what a server on the CPU resolves by itself."""

from types import SimpleNamespace

import pytest

from harness.models import DENSE_MODEL
from sglang.srt.arg_groups.overrides import resolved_view
from sglang.srt.environ import envs
from sglang.srt.mem_cache.kv_cache_configurator import (
    CPU_DEFAULT_NUM_REQS,
    KVCacheConfigurator,
)
from sglang.srt.runtime_context import get_context
from sglang.srt.server_args import ServerArgs


def resolved(**arguments):
    server_args = ServerArgs(model_path=str(DENSE_MODEL), **arguments)
    server_args.resolve_once()
    return resolved_view(server_args)


@pytest.fixture(autouse=True)
def conv_dtype_is_restored():
    with envs.SGLANG_MAMBA_CONV_DTYPE.override("bfloat16"):
        envs.SGLANG_MAMBA_CONV_DTYPE.clear()
        yield


def test_a_plain_server_runs_on_the_cpu_with_state_snapshots():
    server_args = resolved()
    assert server_args.device == "cpu"
    assert server_args.mamba_radix_cache_strategy == "extra_buffer"
    assert not server_args.disable_overlap_schedule


def test_without_overlap_no_buffer_is_picked():
    server_args = resolved(disable_overlap_schedule=True)
    assert server_args.mamba_radix_cache_strategy == "no_buffer"


def test_no_buffer_with_overlap_is_an_error_that_names_both_flags():
    with pytest.raises(ValueError, match="--disable-overlap-schedule") as caught:
        resolved(mamba_radix_cache_strategy="no_buffer")
    assert "--mamba-radix-cache-strategy extra_buffer" in str(caught.value)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_conv_state_follows_the_models_dtype(dtype):
    resolved(dtype=dtype)
    assert envs.SGLANG_MAMBA_CONV_DTYPE.get() == dtype


def test_a_conv_dtype_that_the_user_sets_stands():
    envs.SGLANG_MAMBA_CONV_DTYPE.set("float16")
    resolved(dtype="float32")
    assert envs.SGLANG_MAMBA_CONV_DTYPE.get() == "float16"


class BareConfigurator(KVCacheConfigurator):
    """A configurator that knows its device and model, and four states a request."""

    attn_dp_size = 1
    model_config = SimpleNamespace(context_len=100)

    def __init__(self, device):
        self.device = device

    def _calculate_mamba_ratio(self):
        return 4


@pytest.mark.parametrize(
    ("device", "max_running_requests", "tokens", "slots"),
    [
        ("cpu", None, CPU_DEFAULT_NUM_REQS * 100, CPU_DEFAULT_NUM_REQS * 4),
        ("cpu", 8, 800, 32),
        ("cuda", 8, 1_000_000, 1_000_000),
    ],
)
def test_default_pools_hold_full_requests(device, max_running_requests, tokens, slots):
    fields = {"max_running_requests": max_running_requests}
    with get_context().override_server_args(**fields):
        pools = BareConfigurator(device)
        assert pools._bound_tokens_on_cpu(1_000_000) == tokens
        assert pools._bound_mamba_slots_on_cpu(1_000_000) == slots
        assert pools._bound_tokens_on_cpu(50) == 50
