"""Picks the CPU engine on a machine that has no accelerator.

Runs before anything imports ``sgl_kernel`` or reads ``SGLANG_USE_CPU_ENGINE``, in every
process that imports SGLang and so in spawned workers too.
"""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec

_ENGINE_SWITCH = "SGLANG_USE_CPU_ENGINE"
_PLATFORM_PLUGINS_GROUP = "sglang.srt.platforms"
_COMPILED_CPU_KERNELS = "sglang-kernel-cpu"
_MACHINES = ("x86_64", "amd64", "aarch64", "arm64")


def select_cpu_engine() -> None:
    """Turn the CPU engine on where nothing else can run, and provide its kernels.

    ``SGLANG_USE_CPU_ENGINE``, set to 0 or 1, decides; unset, it becomes 1 on a machine
    without an accelerator, for this process and those that it starts. With the engine
    on, ``import sgl_kernel`` gives the compiled CPU kernels if their distribution is
    installed, or else the ones in PyTorch, ``sgl_kernel_cpu``, which is imported in no
    other case: it registers operators under the names of the compiled ones. Where
    neither is installed, nothing changes.
    """
    has_compiled_kernels = _has_compiled_cpu_kernels()
    if not has_compiled_kernels and find_spec("sgl_kernel_cpu") is None:
        return
    if _ENGINE_SWITCH not in os.environ and not _has_accelerator():
        os.environ[_ENGINE_SWITCH] = "1"
    if os.environ.get(_ENGINE_SWITCH) == "1" and not has_compiled_kernels:
        from sgl_kernel_cpu.select import install

        install()


def _has_accelerator() -> bool:
    """Whether a device that SGLang knows, or a platform plugin, may serve here."""
    if sys.platform == "darwin" or platform.machine().lower() not in _MACHINES:
        return True
    if os.environ.get("SGLANG_PLATFORM") or entry_points(group=_PLATFORM_PLUGINS_GROUP):
        return True
    import torch

    backends = ("cuda", "xpu", "npu", "hpu", "musa", "mps")
    modules = (getattr(torch, name, None) for name in backends)
    return any(module is not None and module.is_available() for module in modules)


def _has_compiled_cpu_kernels() -> bool:
    try:
        version(_COMPILED_CPU_KERNELS)
    except PackageNotFoundError:
        return False
    return True
