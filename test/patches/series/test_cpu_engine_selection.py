"""Patch 912: the CPU engine is picked where nothing else can run."""

import os
import sys
from types import SimpleNamespace

import pytest
import torch

from sglang import _cpu_engine

SWITCH = "SGLANG_USE_CPU_ENGINE"


@pytest.fixture
def installed(monkeypatch):
    """Count installations of the PyTorch kernels, in a process without a choice."""
    calls = []
    select = SimpleNamespace(install=lambda: calls.append(1))
    monkeypatch.setitem(sys.modules, "sgl_kernel_cpu.select", select)
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.delenv("SGLANG_PLATFORM", raising=False)
    return calls


def test_without_an_accelerator_the_engine_is_on_for_this_process_and_its_children(
    installed,
):
    _cpu_engine.select_cpu_engine()
    assert os.environ[SWITCH] == "1"
    assert installed == [1]


@pytest.mark.parametrize("backend", ["cuda", "xpu", "mps", "npu"])
def test_with_an_accelerator_nothing_changes(monkeypatch, installed, backend):
    device = SimpleNamespace(is_available=lambda: True)
    monkeypatch.setattr(torch, backend, device, raising=False)
    _cpu_engine.select_cpu_engine()
    assert SWITCH not in os.environ
    assert installed == []


def test_a_named_platform_is_left_alone(monkeypatch, installed):
    monkeypatch.setenv("SGLANG_PLATFORM", "kunlun")
    _cpu_engine.select_cpu_engine()
    assert SWITCH not in os.environ


def test_an_installed_platform_plugin_is_left_alone(monkeypatch, installed):
    monkeypatch.setattr(_cpu_engine, "entry_points", lambda group: ["plugin"])
    _cpu_engine.select_cpu_engine()
    assert SWITCH not in os.environ


@pytest.mark.parametrize(("choice", "installs"), [("0", []), ("1", [1])])
def test_the_users_choice_stands(monkeypatch, installed, choice, installs):
    monkeypatch.setenv(SWITCH, choice)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: choice == "1")
    _cpu_engine.select_cpu_engine()
    assert os.environ[SWITCH] == choice
    assert installed == installs


def test_compiled_cpu_kernels_stay(monkeypatch, installed):
    monkeypatch.setattr(_cpu_engine, "version", lambda name: "0.4.10")
    _cpu_engine.select_cpu_engine()
    assert os.environ[SWITCH] == "1"
    assert installed == []
