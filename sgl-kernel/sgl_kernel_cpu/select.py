"""Choosing the CPU engine, and this package as its `sgl_kernel`.

SGLang runs on its CPU engine where SGLANG_USE_CPU_ENGINE is 1, and then imports a CPU
build of `sgl_kernel`, while the distribution that it depends on is the CUDA build.
`sglang/__init__.py` calls `select_cpu_engine`, in every process that imports SGLang and
so in spawned workers too; nothing is written to disk and the installed `sgl_kernel` is
not touched.
"""

import importlib
import importlib.metadata
import logging
import os
import pkgutil
import sys

import torch

logger = logging.getLogger(__name__)

_ENGINE_VARIABLE = "SGLANG_USE_CPU_ENGINE"
# The compiled CPU build, which needs AMX; where someone installed it, it stays.
_COMPILED_DISTRIBUTION = "sglang-kernel-cpu"


def has_usable_accelerator() -> bool:
    """Whether PyTorch sees a device of any other kind than the CPU.

    No device is initialized: CUDA and ROCm devices are counted through their management
    libraries, because a first call to the runtime would break processes forked later.
    """
    if torch.cuda.device_count() > 0:
        return True
    kinds = ("xpu", "mps", "npu", "hpu", "musa", "mtia")
    modules = (getattr(torch, kind, None) for kind in kinds)
    return any(module is not None and module.is_available() for module in modules)


def select_cpu_engine() -> bool:
    """Use the CPU engine where the user asked for it or has no accelerator.

    SGLANG_USE_CPU_ENGINE decides where it is set: 1 selects the engine, anything else
    leaves everything to SGLang. So does SGLANG_PLATFORM, which names a platform.

    Returns:
        Whether the CPU engine is selected. SGLANG_USE_CPU_ENGINE is then 1, for this
        process and its children.
    """
    choice = os.environ.get(_ENGINE_VARIABLE)
    if choice is None:
        platform = os.environ.get("SGLANG_PLATFORM", "cpu")
        if platform != "cpu" or has_usable_accelerator():
            return False
        os.environ[_ENGINE_VARIABLE] = choice = "1"
    if choice != "1":
        return False
    if not _has_compiled_build():
        install()
    return True


def install() -> None:
    """Make `sgl_kernel` and its submodules this package, in this process.

    An `sgl_kernel` that is imported already stays as it is.
    """
    if "sgl_kernel" in sys.modules:
        return
    package = importlib.import_module(__package__)
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{__package__}.{info.name}")
        sys.modules[f"sgl_kernel.{info.name}"] = module
    sys.modules["sgl_kernel"] = package


def _has_compiled_build() -> bool:
    try:
        importlib.metadata.version(_COMPILED_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
