"""A CPU build of sgl_kernel may say that it runs without AMX."""

from patches.engine.edits import Insert, ReplaceExpression
from patches.engine.patch import Patch
from patches.engine.place import Find

FILE = "srt/utils/common.py"

PATCH = Patch(
    number=902,
    title="[CPU] Take the CPU kernels of an sgl_kernel that does not need AMX",
    message="""\
## Motivation

Every CPU path is guarded by `cpu_has_amx_support()`, which asks whether the CPU has AMX
tiles. The real question is whether the installed `sgl_kernel` has CPU ops that this CPU
can run. Where it is no, models fall through to CUDA or Triton code and crash.

## Modifications

Let a CPU build of `sgl_kernel` declare `REQUIRES_AMX = False`. A build that does not
say so is taken to need AMX, as before. `get_device()` keeps announcing AMX only where
the CPU has it.
""",
    edits=(
        Insert(
            file=FILE,
            before="cpu_has_amx_support",
            code='''
            @lru_cache(maxsize=1)
            def _sgl_kernel_requires_amx() -> bool:
                """Whether the CPU ops of the installed sgl_kernel need AMX tiles."""
                try:
                    import sgl_kernel
                except Exception:
                    return True
                return getattr(sgl_kernel, "REQUIRES_AMX", True)
            ''',
        ),
        ReplaceExpression(
            file=FILE,
            scope="cpu_has_amx_support",
            at=Find("name", "is_amx_tile_supported"),
            code="""(
                is_amx_tile_supported or (is_cpu() and not _sgl_kernel_requires_amx())
            )""",
        ),
        ReplaceExpression(
            file=FILE,
            scope="get_device",
            at=Find("if", mentions=("cpu_has_amx_support",)),
            code="is_amx_tile_supported and __original__",
        ),
    ),
    tests=("unit/utils/test_cpu_kernels_without_amx.py",),
)
