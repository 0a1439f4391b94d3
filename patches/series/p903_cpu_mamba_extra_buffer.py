"""Both strategies of the mamba radix cache work on the CPU."""

from patches.engine.edits import ExtendCollection, ReplaceExpression, ReplaceStatement
from patches.engine.patch import Patch
from patches.engine.place import Find

FILE = "srt/arg_groups/mamba_hook.py"

PATCH = Patch(
    number=903,
    title="[CPU] Support the extra_buffer strategy of the mamba radix cache",
    message="""\
## Motivation

With default flags a hybrid model resolves `--mamba-radix-cache-strategy` to
`extra_buffer`, which then asserts on the CPU that the platform cannot snapshot mamba
states.

## Modifications

With the CPU branches of `track_mamba_states_*` and
`scatter_mamba_states_after_mtp_verify` the CPU can, so list it.

`no_buffer` works on the CPU too. As on every platform it needs the overlap scheduler
off: `auto` with `--disable-overlap-schedule` picks it. The error for a server that asks
for both now names the flags.
""",
    edits=(
        ExtendCollection(
            file="srt/runtime_context.py",
            at=Find("assign", "_PLATFORM_PROBES"),
            code='"is_cpu": "is_cpu"',
        ),
        ReplaceExpression(
            file=FILE,
            scope="_platform_supports_mamba_cache_extra_buffer",
            at=Find("boolean", mentions=("is_cuda", "is_xpu"), nth=0, of=1),
            code="platform.is_cpu or __original__",
        ),
        ReplaceStatement(
            file=FILE,
            scope="validate_mamba_no_buffer",
            at=Find("assert", mentions=("disable_overlap_schedule",)),
            code="""
            if not view.disable_overlap_schedule:
                raise ValueError(
                    "--mamba-radix-cache-strategy no_buffer does not work with the "
                    "overlap scheduler. Add --disable-overlap-schedule, or use "
                    "--mamba-radix-cache-strategy extra_buffer."
                )
            """,
        ),
    ),
    tests=("unit/arg_groups/test_mamba_strategy_on_cpu.py",),
)
