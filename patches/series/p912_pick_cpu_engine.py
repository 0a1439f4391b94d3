"""The CPU engine is picked by itself where there is no accelerator."""

from patches.engine.edits import Insert
from patches.engine.patch import Patch
from patches.engine.place import Find

PATCH = Patch(
    number=912,
    title="[CPU] Pick the CPU engine on machines without an accelerator",
    message="""\
## Motivation

Without a GPU, `python -m sglang.launch_server --model-path M` ends in "No accelerator
… is available", and with `--device cpu` it imports a CUDA build of `sgl_kernel` that
cannot load. The way out, `SGLANG_USE_CPU_ENGINE=1` and a CPU build of `sgl_kernel`, has
to be known.

## Modifications

Set the switch in `sglang/__init__.py` when no accelerator is there and the user has not
set it, and serve `import sgl_kernel` from `sgl_kernel_cpu` while the CPU engine is on
and no compiled CPU kernels are installed. With an accelerator, or with no CPU kernels
of either kind, nothing changes.
""",
    edits=(
        Insert(
            file="__init__.py",
            before=Find("import", "sglang.srt.utils.hf_transformers_patches"),
            code="""
            from sglang._cpu_engine import select_cpu_engine as _select_cpu_engine

            _select_cpu_engine()
            """,
        ),
    ),
    overlay=("_cpu_engine.py",),
    tests=("unit/utils/test_cpu_engine_selection.py",),
)
