"""Serving this package to SGLang under the name `sgl_kernel`.

SGLang's CPU engine imports a CPU build of `sgl_kernel`, while the distribution that
SGLang depends on is the CUDA build. `sglang/_cpu_engine.py` decides when to call
`install`; nothing is written to disk and the installed `sgl_kernel` is not touched.
"""

import importlib
import pkgutil
import sys


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
