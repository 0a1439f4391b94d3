"""NVFP4 experts on Triton kernels, and in PyTorch on the CPU."""

from patches.engine.edits import AddImport, Insert, ReplaceExpression
from patches.engine.patch import Edit, Patch
from patches.engine.place import Find

MOE_UTILS = "srt/layers/moe/utils.py"
MODELOPT = "srt/layers/quantization/modelopt_quant.py"
METHOD = "ModelOptNvFp4FusedMoEMethod"
SCHEMES = "srt/layers/quantization/compressed_tensors/schemes"
W4A4 = f"{SCHEMES}/compressed_tensors_w4a4_nvfp4_moe.py"
W4A4_SCHEME = "CompressedTensorsW4A4Nvfp4MoE"
W4A16 = f"{SCHEMES}/compressed_tensors_w4a16_nvfp4_moe.py"
W4A16_SCHEME = "CompressedTensorsW4A16Nvfp4MoE"
RUNNER = "srt/layers/moe/moe_runner/nvfp4_triton.py"

RUN = """
from sglang.srt.layers.moe.moe_runner.nvfp4_triton import (
    Nvfp4TritonMoeQuantInfo,
)

return self.runner.run(dispatch_output, Nvfp4TritonMoeQuantInfo.of(layer))
"""
CREATE = """
from sglang.srt.layers.moe.moe_runner.nvfp4_triton import create_nvfp4_runner

self.runner = create_nvfp4_runner(moe_runner_config)
return
"""
IMPORT_PREPARE = """
from sglang.srt.layers.moe.moe_runner.nvfp4_triton import prepare_nvfp4_experts
"""


def when(condition: str, *blocks: str) -> str:
    """An if statement around blocks of statements."""
    lines = "\n".join(block.strip("\n") for block in blocks).splitlines()
    return "\n".join([f"if {condition}:", *(f"    {line}" for line in lines)])


def choose_at_construction(
    releases: str, condition: str, guard: str
) -> tuple[Edit, ...]:
    """Let a W4A4 scheme that takes the Triton kernels pass the check for Blackwell."""
    check = Find("if", mentions=(condition,))
    init = f"{W4A4_SCHEME}.__init__"
    return (
        Insert(
            file=W4A4,
            releases=releases,
            scope=init,
            before=check,
            code=f"self.use_nvfp4_triton = {guard}use_nvfp4_triton_moe()",
        ),
        ReplaceExpression(
            file=W4A4,
            releases=releases,
            scope=init,
            at=check,
            code="__original__ and not self.use_nvfp4_triton",
        ),
    )


SELECTION = (
    AddImport(file=MOE_UTILS, module="sglang.srt.utils", names=("is_cpu",)),
    Insert(
        file=MOE_UTILS,
        after="get_moe_runner_backend",
        code='''
        def use_nvfp4_triton_moe() -> bool:
            """Whether NVFP4 experts that are built now run on the Triton kernels."""
            backend = get_moe_runner_backend()
            return backend.is_triton() or (backend.is_auto() and is_cpu())
        ''',
    ),
)

MODELOPT_EXPERTS = (
    Insert(
        file=MODELOPT,
        scope=f"{METHOD}.__init__",
        before=Find("if", mentions=("is_blackwell",)),
        code="""
        from sglang.srt.layers.moe.utils import use_nvfp4_triton_moe

        self._use_nvfp4_triton = use_nvfp4_triton_moe()
        """,
    ),
    ReplaceExpression(
        file=MODELOPT,
        scope=f"{METHOD}.__init__",
        at=Find("if", mentions=("is_blackwell",)),
        code="__original__ and not self._use_nvfp4_triton",
    ),
    Insert(
        file=MODELOPT,
        scope=f"{METHOD}.create_moe_runner",
        before=Find("if", mentions=("is_auto",)),
        code=when(
            "self._use_nvfp4_triton",
            "self._moe_runner_backend = MoeRunnerBackend.TRITON",
            CREATE,
        ),
    ),
    Insert(
        file=MODELOPT,
        scope=f"{METHOD}.process_weights_after_loading",
        before=Find("if", mentions=("is_marlin",)),
        code=when(
            "moe_runner_backend.is_triton()",
            IMPORT_PREPARE,
            """
if self.quant_config.use_per_token_activation:
    raise ValueError(
        "--moe-runner-backend triton does not support "
        "SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION; unset it."
    )
w13_input_scale = w2_input_scale = None
if not self.quant_config.is_w4a16:
    w13_input_scale = layer.w13_input_scale.max()
    w2_input_scale = _input_scale_to_local_experts(
        layer.w2_input_scale,
        layer.num_local_experts,
        layer.num_experts,
        layer.moe_ep_rank,
    )
prepare_nvfp4_experts(
    layer,
    layer.w13_weight_scale_2,
    layer.w2_weight_scale_2,
    w13_input_scale,
    w2_input_scale,
)
return
""",
        ),
    ),
    Insert(
        file=MODELOPT,
        scope=f"{METHOD}.apply",
        before=Find("if", mentions=("is_marlin",)),
        code=when("moe_runner_backend.is_triton()", RUN),
    ),
    # Experts cannot tell from anything else that their activations stay as they are.
    Insert(
        file=MODELOPT,
        scope="ModelOptMixedPrecisionConfig.from_config",
        after=Find("assign", "nvfp4a16_config"),
        code="nvfp4a16_config.is_w4a16 = True",
    ),
)

COMPRESSED_EXPERTS = (
    AddImport(
        file=W4A4,
        module="sglang.srt.layers.moe.utils",
        names=("use_nvfp4_triton_moe",),
    ),
    *choose_at_construction(
        ">=0.5.23", "requires_blackwell", "self.requires_blackwell and "
    ),
    # Every subclass ran on Blackwell only.
    *choose_at_construction("<0.5.23", "is_blackwell", ""),
    ReplaceExpression(
        file=W4A4,
        scope=f"{W4A4_SCHEME}.load_up_proj_weight_first",
        at=Find("return"),
        code="__original__ and not self.use_nvfp4_triton",
    ),
    ReplaceExpression(
        file=W4A4,
        scope=f"{W4A4_SCHEME}.get_min_capability",
        at=Find("return"),
        code="80 if use_nvfp4_triton_moe() else __original__",
    ),
    Insert(
        file=W4A4,
        scope=f"{W4A4_SCHEME}.process_weights_after_loading",
        after=Find("call statement", "delattr", mentions=("w2_weight_packed",)),
        code=when(
            "self.use_nvfp4_triton",
            IMPORT_PREPARE,
            """
prepare_nvfp4_experts(
    layer,
    1 / layer.w13_weight_global_scale,
    1 / layer.w2_weight_global_scale,
    1 / layer.w13_input_global_scale.min(),
    1 / layer.w2_input_global_scale,
)
return
""",
        ),
    ),
    Insert(
        file=W4A4,
        scope=f"{W4A4_SCHEME}.create_moe_runner",
        after=Find("assign", "self.moe_runner_config"),
        code=when("self.use_nvfp4_triton", CREATE),
    ),
    Insert(
        file=W4A4,
        scope=f"{W4A4_SCHEME}.apply_weights",
        before=Find("assign", "x"),
        code=when("self.use_nvfp4_triton", RUN),
    ),
    AddImport(file=W4A16, module="sglang.srt.utils", names=("is_cpu",)),
    Insert(
        file=W4A16,
        scope=f"{W4A16_SCHEME}.process_weights_after_loading",
        before=Find("if", mentions=("hidden_size",)),
        code=when(
            "is_cpu()",
            IMPORT_PREPARE,
            """
prepare_nvfp4_experts(
    layer, layer.w13_weight_scale_2[:, None], layer.w2_weight_scale_2
)
return
""",
        ),
    ),
    Insert(
        file=W4A16,
        scope=f"{W4A16_SCHEME}.create_moe_runner",
        after=Find("assign", "self.moe_runner_config"),
        code=when("is_cpu()", CREATE),
    ),
    Insert(
        file=W4A16,
        scope=f"{W4A16_SCHEME}.apply_weights",
        before=Find("import", "sglang.srt.layers.moe.moe_runner.marlin"),
        code=when("is_cpu()", RUN),
    ),
)

PATCH = Patch(
    number=810,
    title="[Kernel] Serve NVFP4 experts with --moe-runner-backend triton",
    message="""\
## Motivation

`--moe-runner-backend triton` is an error for NVFP4 experts of ModelOpt checkpoints, and
is ignored for those of compressed-tensors. Without a GPU they do not load at all.

## Modifications

- A runner core for NVFP4 experts, registered with `register_moe_runner_core`, on the
  Triton kernels of `sgl_kernel_nvfp4` and SGLang's sorted-token layout. Experts of one
  rank with and without tensor or expert parallelism; no A2A backend.
- ModelOpt and compressed-tensors W4A4 experts take it with
  `--moe-runner-backend triton`. What the kernels do not compute is an error that names
  it; weight-only experts stay with Marlin on GPUs.
- The CPU engine takes it by itself, for W4A4 and W4A16. Elsewhere `auto` chooses what
  it chose before.

## Accuracy Tests

On the CPU, in float32: experts against the weights that compressed-tensors unpacks,
token by token. In the fork's server tests, greedy tokens of NVFP4 checkpoints are those
of transformers with the same quantisation.

## Benchmark and Profiling

None: no SM12x card was at hand, so the curve M = 1 to 128 on real layer shapes, which
this change needs, is missing.
""",
    edits=(*SELECTION, *MODELOPT_EXPERTS, *COMPRESSED_EXPERTS),
    overlay=(RUNNER,),
    tests=("unit/layers/moe/test_nvfp4_triton_experts.py",),
)
