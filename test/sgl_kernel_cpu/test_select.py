import importlib
import sys
from types import SimpleNamespace

import pytest

import sgl_kernel_cpu
from sgl_kernel_cpu import mamba
from sgl_kernel_cpu.select import install


@pytest.fixture(autouse=True)
def without_sgl_kernel(monkeypatch):
    """A process that has not imported sgl_kernel; undone afterwards."""
    for name in [m for m in sys.modules if m.split(".")[0] == "sgl_kernel"]:
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in [m for m in sys.modules if m.split(".")[0] == "sgl_kernel"]:
        del sys.modules[name]


def test_the_package_and_its_submodules_are_the_same_modules():
    install()
    assert importlib.import_module("sgl_kernel") is sgl_kernel_cpu
    assert importlib.import_module("sgl_kernel.mamba") is mamba


def test_a_submodule_of_the_cuda_build_is_missing():
    install()
    with pytest.raises(ModuleNotFoundError, match=r"sgl_kernel\.allreduce"):
        importlib.import_module("sgl_kernel.allreduce")


def test_an_imported_sgl_kernel_stays(monkeypatch):
    compiled = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "sgl_kernel", compiled)
    install()
    assert sys.modules["sgl_kernel"] is compiled


def test_installing_twice_changes_nothing():
    install()
    install()
    assert sys.modules["sgl_kernel"] is sgl_kernel_cpu
