"""Small helpers run eagerly on the CPU instead of through a C++ compiler."""

from patches.engine.edits import AddImport, Insert, ReplaceExpression
from patches.engine.patch import Edit, Patch
from patches.engine.place import Find


def run_eagerly(file: str, sites: int = 1, flag: str = "_is_cpu") -> Edit:
    """Add the CPU to what disables ``torch.compile`` in a file's decorators."""
    return ReplaceExpression(
        file=file,
        at=Find("keyword", "disable"),
        code=f"__original__ or {flag}",
        sites=sites,
    )


def add_flag(file: str, releases: str = "") -> tuple[Edit, ...]:
    """Define ``_is_cpu`` beside ``_is_npu``."""
    return (
        AddImport(
            file=file, releases=releases, module="sglang.srt.utils", names=("is_cpu",)
        ),
        Insert(
            file=file,
            releases=releases,
            after=Find("assign", "_is_npu"),
            code="_is_cpu = is_cpu()",
        ),
    )


PENALTY = "srt/sampling/penaltylib/repetition_penalty.py"
OVERLAP = "srt/managers/overlap_utils.py"
SPEC_UTILS = "srt/speculative/spec_utils.py"
SAMPLER = "srt/layers/sampler.py"

PATCH = Patch(
    number=913,
    title="[CPU] Do not torch.compile small helpers",
    message="""\
## Motivation

The first request with a repetition penalty, a sampling seed, a token tree, tensor
parallelism or a biased expert choice makes Inductor compile a helper of a few lines. On
a CPU that takes 10 to 20 seconds, during which the scheduler serves nobody, and on a
machine without a C++ compiler it raises and the server dies.

## Modifications

Run these helpers eagerly there, as NPU does: they touch a few rows a step.
`--enable-torch-compile`, which compiles the model, is not affected.

## Benchmark and Profiling

No measurement beyond the time to compile named above.
""",
    edits=(
        *add_flag(PENALTY),
        run_eagerly(PENALTY),
        *add_flag(OVERLAP),
        run_eagerly(OVERLAP),
        *add_flag(SPEC_UTILS, releases=">=0.5.23"),
        *(
            ReplaceExpression(
                file=SPEC_UTILS,
                releases=releases,
                at=Find("keyword", "disable"),
                code="_is_npu or _is_xpu or _is_cpu",
                sites=sites,
            )
            for releases, sites in ((">=0.5.23", 1), ("<0.5.23", 2))
        ),
        AddImport(file=SAMPLER, module="sglang.srt.utils.common", names=("is_cpu",)),
        run_eagerly(SAMPLER, flag="is_cpu()"),
        run_eagerly("srt/layers/moe/topk.py", sites=4),
        run_eagerly("srt/layers/vocab_parallel_embedding.py"),
    ),
    tests=("unit/utils/test_cpu_runs_eagerly.py",),
)
