import importlib
import importlib.metadata
import os
import sys
from types import SimpleNamespace

import pytest
import sgl_kernel_cpu
import torch
from sgl_kernel_cpu import mamba, select

ENGINE = "SGLANG_USE_CPU_ENGINE"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """A process without sgl_kernel, settings or accelerator; undone afterwards."""
    for name in [m for m in sys.modules if m.split(".")[0] == "sgl_kernel"]:
        monkeypatch.delitem(sys.modules, name)
    before = dict(sys.modules)
    monkeypatch.delenv(ENGINE, raising=False)
    monkeypatch.delenv("SGLANG_PLATFORM", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for kind in ("xpu", "mps", "npu", "hpu", "musa", "mtia"):
        absent = SimpleNamespace(is_available=lambda: False)
        monkeypatch.setattr(torch, kind, absent, raising=False)
    yield
    os.environ.pop(ENGINE, None)
    for name in set(sys.modules) - set(before):
        if name.split(".")[0] == "sgl_kernel":
            del sys.modules[name]


def installed():
    return sys.modules.get("sgl_kernel") is sgl_kernel_cpu


def test_a_machine_without_accelerator_needs_no_setting():
    assert not select.has_usable_accelerator()
    assert select.select_cpu_engine()
    assert installed()
    assert os.environ[ENGINE] == "1"


@pytest.mark.parametrize("kind", ["xpu", "mps", "npu", "hpu", "musa", "mtia"])
def test_any_accelerator_leaves_everything_to_sglang(monkeypatch, kind):
    monkeypatch.setattr(getattr(torch, kind), "is_available", lambda: True)
    assert select.has_usable_accelerator()
    assert not select.select_cpu_engine()
    assert not installed()
    assert ENGINE not in os.environ


def test_a_gpu_is_counted_without_starting_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", pytest.fail)
    assert select.has_usable_accelerator()
    assert not torch.cuda.is_initialized()


@pytest.mark.parametrize(("value", "selected"), [("1", True), ("0", False), ("", False)])
@pytest.mark.parametrize("gpus", [0, 1])
def test_the_users_setting_decides(monkeypatch, value, selected, gpus):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv(ENGINE, value)
    assert select.select_cpu_engine() is selected
    assert installed() is selected
    assert os.environ[ENGINE] == value


def test_a_named_platform_is_respected(monkeypatch):
    monkeypatch.setenv("SGLANG_PLATFORM", "my_device")
    assert not select.select_cpu_engine()
    assert not installed()


def test_submodules_are_the_same_modules_and_others_are_missing():
    select.install()
    assert importlib.import_module("sgl_kernel.mamba") is mamba
    with pytest.raises(ModuleNotFoundError, match=r"sgl_kernel\.allreduce"):
        importlib.import_module("sgl_kernel.allreduce")


def test_an_imported_sgl_kernel_stays(monkeypatch):
    compiled = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "sgl_kernel", compiled)
    select.install()
    assert sys.modules["sgl_kernel"] is compiled


def test_an_installed_compiled_build_is_preferred(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.4.10")
    assert select.select_cpu_engine()
    assert not installed()
