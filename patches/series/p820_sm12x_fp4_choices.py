"""What SM12x takes for NVFP4: by itself for mixed checkpoints, and on request b12x."""

from patches.engine.edits import (
    AddImport,
    ExtendCollection,
    Insert,
    ReplaceExpression,
)
from patches.engine.patch import Patch
from patches.engine.place import Find

FP4_UTILS = "srt/layers/quantization/fp4_utils.py"
OVERRIDES = "srt/arg_groups/overrides.py"
MIXED = "srt/arg_groups/modelopt_mixed_moe.py"

B12X = (
    ExtendCollection(
        file="srt/arg_groups/choices.py",
        at=Find("assign", "FP4_GEMM_RUNNER_BACKEND_CHOICES"),
        code='"flashinfer_b12x"',
    ),
    Insert(
        file=FP4_UTILS,
        scope="Fp4GemmRunnerBackend",
        before=Find("assign", "FLASHINFER_CUDNN"),
        code='FLASHINFER_B12X = "flashinfer_b12x"',
    ),
    Insert(
        file=FP4_UTILS,
        scope="Fp4GemmRunnerBackend",
        before="is_flashinfer_cudnn",
        code="""
        def is_flashinfer_b12x(self) -> bool:
            return self == Fp4GemmRunnerBackend.FLASHINFER_B12X
        """,
    ),
    Insert(
        file=FP4_UTILS,
        before="initialize_fp4_gemm_config",
        code='''
        def check_flashinfer_b12x() -> None:
            """Fail at start-up, not at the first GEMM, where b12x cannot run."""
            if not get_platform().is_sm120:
                raise ValueError(
                    "--fp4-gemm-backend flashinfer_b12x requires SM12x (RTX PRO 6000, "
                    f"RTX 50xx, GB10), got {get_platform().device_capability}. "
                    "Use --fp4-gemm-backend auto."
                )
            try:
                from flashinfer import __version__, mm_fp4

                has_b12x = mm_fp4.has_backend("b12x")
            except (ImportError, AttributeError):
                __version__, has_b12x = "none", False
            if not has_b12x:
                raise ValueError(
                    "--fp4-gemm-backend flashinfer_b12x requires a FlashInfer whose "
                    f"mm_fp4 has the backend b12x, found version {__version__}. "
                    "Upgrade flashinfer-python, or use --fp4-gemm-backend "
                    "flashinfer_cutlass."
                )
        ''',
    ),
    Insert(
        file=FP4_UTILS,
        scope="initialize_fp4_gemm_config",
        after=Find("assign", "FP4_GEMM_RUNNER_BACKEND"),
        code="""
        if FP4_GEMM_RUNNER_BACKEND.is_flashinfer_b12x():
            check_flashinfer_b12x()
        """,
    ),
    ReplaceExpression(
        file="srt/model_executor/runner/flashinfer_autotune.py",
        scope="should_run_flashinfer_autotune",
        at=Find("assign", "fp4_gemm_needs_autotune"),
        code="""
        __original__ or (
            model_uses_fp4 and get_fp4_gemm_runner_backend().is_flashinfer_b12x()
        )
        """,
    ),
)

MIXED_EXPERTS = (
    AddImport(
        file=OVERRIDES,
        module="sglang.srt.arg_groups.modelopt_mixed_moe",
        names=("moe_runner_backend_without_sm100",),
        after="sglang.srt.arg_groups.model_override_base",
    ),
    Insert(
        file=OVERRIDES,
        scope="_moe_runner_backend_quant_constraints",
        after=Find("if", mentions=("modelopt_fp4",)),
        code="""
        if moe_runner_backend == "auto" and (
            get_platform().is_sm120 or get_platform().is_sm110
        ):
            moe_runner_backend = moe_runner_backend_without_sm100(
                model_config_of(view), view.quantization
            )
        """,
    ),
)

PATCH = Patch(
    number=820,
    title="[Fix] Choose NVFP4 backends that SM12x has for modelopt_mixed; offer b12x",
    message="""\
## Motivation

On SM110 and SM120, `modelopt_fp4` resolves `--moe-runner-backend auto` to
`flashinfer_cutlass`, because the trtllm-gen kernels are SM100-only. `modelopt_mixed`
has no such rule: its NVFP4 experts end in `flashinfer_trtllm` and fail to load.

FlashInfer has b12x kernels for SM12x that `--fp4-gemm-backend` does not offer.

## Modifications

- The experts of a mixed checkpoint decide: NVFP4 takes `flashinfer_cutlass`,
  W4A16_NVFP4 takes `marlin`, as on SM100. The checkpoint is asked also where
  `--quantization` is not given.
- `--fp4-gemm-backend flashinfer_b12x`, checked at start-up: SM12x, and a FlashInfer
  that has it. `auto` does not take it.

## Accuracy Tests

None: no SM12x card was at hand, so nothing that b12x computes was seen.

## Benchmark and Profiling

None, for the same reason. The choices are tested with a platform that says it is
one; whether b12x is the faster backend was not measured, so `auto` does not take it.
""",
    edits=(*B12X, *MIXED_EXPERTS),
    overlay=(MIXED,),
    tests=("unit/layers/quantization/test_fp4_backend_choices.py",),
)
