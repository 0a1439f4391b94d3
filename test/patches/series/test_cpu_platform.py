"""Patches 902, 903, 904, 910: what the CPU platform says and does without a GPU."""

import sys
from types import SimpleNamespace

import pytest
import torch

from sglang.srt.arg_groups.mamba_hook import _platform_supports_mamba_cache_extra_buffer
from sglang.srt.distributed.device_communicators.pynccl import PyNcclCommunicator
from sglang.srt.distributed.utils import StatelessProcessGroup
from sglang.srt.runtime_context import get_platform
from sglang.srt.utils import common


@pytest.fixture
def fresh_probe():
    common._sgl_kernel_requires_amx.cache_clear()
    yield
    common._sgl_kernel_requires_amx.cache_clear()


@pytest.mark.parametrize(
    ("has_tiles", "requires_amx", "supported"),
    [
        (False, False, True),
        (False, True, False),
        (False, None, False),
        (True, True, True),
        (True, None, True),
    ],
)
def test_cpu_kernels_are_taken_where_they_run(
    monkeypatch, fresh_probe, has_tiles, requires_amx, supported
):
    import sgl_kernel

    if requires_amx is None:
        monkeypatch.delattr(sgl_kernel, "REQUIRES_AMX")
    else:
        monkeypatch.setattr(sgl_kernel, "REQUIRES_AMX", requires_amx)
    monkeypatch.setattr(common, "is_amx_tile_supported", has_tiles)
    assert common.cpu_has_amx_support() is supported


def test_a_missing_sgl_kernel_gives_no_cpu_kernels(monkeypatch, fresh_probe):
    monkeypatch.setitem(sys.modules, "sgl_kernel", None)
    monkeypatch.setattr(common, "is_amx_tile_supported", False)
    assert not common.cpu_has_amx_support()


def test_the_cpu_can_snapshot_mamba_states():
    assert get_platform().is_cpu
    assert _platform_supports_mamba_cache_extra_buffer()


def test_host_memory_stays_pageable_without_a_gpu():
    tensor = torch.arange(3)
    assert common.maybe_pin_memory(tensor) is tensor


def test_host_memory_is_pinned_where_the_platform_can(monkeypatch):
    monkeypatch.setattr(common, "is_pin_memory_available", lambda: True)
    pinned = object()
    tensor = SimpleNamespace(pin_memory=lambda: pinned)
    assert common.maybe_pin_memory(tensor) is pinned


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_no_nccl_communicator_is_opened_for_the_cpu(device):
    group = StatelessProcessGroup(rank=0, world_size=2, store=None)
    communicator = PyNcclCommunicator(group, device)
    assert not communicator.available
    assert communicator.disabled
