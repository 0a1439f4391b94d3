"""NVFP4 linear layers on Triton kernels, and in PyTorch on the CPU."""

from patches.engine.edits import (
    AddImport,
    ExtendCollection,
    Insert,
    ReplaceExpression,
)
from patches.engine.patch import Patch
from patches.engine.place import Find

FP4_UTILS = "srt/layers/quantization/fp4_utils.py"
MODELOPT = "srt/layers/quantization/modelopt_quant.py"
COMPRESSED = "srt/layers/quantization/compressed_tensors/compressed_tensors.py"
SCHEMES = "srt/layers/quantization/compressed_tensors/schemes"
W4A4 = f"{SCHEMES}/compressed_tensors_w4a4_nvfp4.py"
W4A16 = f"{SCHEMES}/compressed_tensors_w4a16_nvfp4.py"
LAYER = "srt/layers/quantization/nvfp4_triton.py"

IMPORT_PREPARE = """
from sglang.srt.layers.quantization.nvfp4_triton import prepare_nvfp4_linear
"""
IMPORT_APPLY = """
from sglang.srt.layers.quantization.nvfp4_triton import apply_nvfp4_linear
"""

BACKEND = (
    ExtendCollection(
        file="srt/arg_groups/choices.py",
        at=Find("assign", "FP4_GEMM_RUNNER_BACKEND_CHOICES"),
        code='"triton"',
    ),
    Insert(
        file=FP4_UTILS,
        scope="Fp4GemmRunnerBackend",
        after=Find("assign", "MARLIN"),
        code='TRITON = "triton"',
    ),
    Insert(
        file=FP4_UTILS,
        scope="Fp4GemmRunnerBackend",
        after="is_marlin",
        code="""
        def is_triton(self) -> bool:
            return self == Fp4GemmRunnerBackend.TRITON
        """,
    ),
    ReplaceExpression(
        file=FP4_UTILS,
        scope="Fp4GemmRunnerBackend.supports_swiglu_fusion",
        at=Find("return"),
        code="__original__ and not self.is_triton()",
    ),
    AddImport(file=FP4_UTILS, module="sglang.srt.utils.common", names=("is_cpu",)),
    Insert(
        file=FP4_UTILS,
        scope="initialize_fp4_gemm_config",
        before=Find("if", mentions=("backend", "auto")),
        code="""
        if backend == "auto" and is_cpu():
            backend = "triton"
        """,
    ),
    # The fused kernel is FlashInfer's, and so is the layout of what it writes.
    Insert(
        file="srt/models/qwen3_5.py",
        scope="_maybe_enable_silu_fp4_quant_fusion",
        before=Find("import", "sglang.srt.layers.quantization.modelopt_quant"),
        code="""
        from sglang.srt.layers.quantization.fp4_utils import (
            get_fp4_gemm_runner_backend,
        )

        if not get_fp4_gemm_runner_backend().is_flashinfer():
            return
        """,
    ),
)

METHODS = "srt/layers/quantization/__init__.py"

CPU_METHODS = (
    ExtendCollection(
        file=METHODS,
        at=Find("assign", "CPU_QUANTIZATION_METHODS"),
        code="""
        "modelopt_fp4": ModelOptFp4Config,
        "modelopt_mixed": ModelOptMixedPrecisionConfig,
        """,
    ),
    ReplaceExpression(
        file=METHODS,
        scope="get_quantization_config",
        at=Find(
            "name",
            "QUANTIZATION_METHODS",
            within=Find("if", mentions=("CPU_QUANTIZATION_METHODS",)),
        ),
        code="CPU_QUANTIZATION_METHODS",
    ),
)

MODELOPT_LAYERS = (
    Insert(
        file=MODELOPT,
        scope="ModelOptFp4LinearMethod.process_weights_after_loading",
        before=Find("if", mentions=("is_marlin",)),
        code=f"""
        if get_fp4_gemm_runner_backend().is_triton():
            {IMPORT_PREPARE.strip()}

            prepare_nvfp4_linear(layer, layer.weight_scale_2, input_scale_2)
            return
        """,
    ),
    Insert(
        file=MODELOPT,
        scope="ModelOptFp4LinearMethod.apply",
        before=Find("if", mentions=("is_marlin",)),
        code=f"""
        if get_fp4_gemm_runner_backend().is_triton():
            {IMPORT_APPLY.strip()}

            if self.quant_config.is_awq:
                x = x * layer.pre_quant_scale
            return apply_nvfp4_linear(layer, x, bias)
        """,
    ),
    Insert(
        file=MODELOPT,
        scope="ModelOptNvFp4A16LinearMethod.process_weights_after_loading",
        before=Find("if", mentions=("hasattr", "input_scale")),
        code=f"""
        if get_fp4_gemm_runner_backend().is_triton():
            {IMPORT_PREPARE.strip()}

            prepare_nvfp4_linear(layer, layer.weight_scale_2)
            return
        """,
    ),
    Insert(
        file=MODELOPT,
        scope="ModelOptNvFp4A16LinearMethod.apply",
        before=Find("return"),
        code=f"""
        if get_fp4_gemm_runner_backend().is_triton():
            {IMPORT_APPLY.strip()}

            return apply_nvfp4_linear(layer, x, bias)
        """,
    ),
    AddImport(file=MODELOPT, module="sglang.srt.utils.common", names=("is_cpu",)),
    *(
        ReplaceExpression(
            file=MODELOPT,
            scope=f"{config}.get_supported_act_dtypes",
            at=Find("return"),
            code="__original__ + ([torch.float32] if is_cpu() else [])",
        )
        for config in ("ModelOptFp4Config", "ModelOptMixedPrecisionConfig")
    ),
)

COMPRESSED_LAYERS = (
    AddImport(file=COMPRESSED, module="sglang.srt.utils", names=("is_cpu",)),
    Insert(
        file=COMPRESSED,
        after=Find("assign", "_is_cuda"),
        code="_is_cpu = is_cpu()",
    ),
    ReplaceExpression(
        file=COMPRESSED,
        scope="CompressedTensorsConfig.get_supported_act_dtypes",
        at=Find("return"),
        code="__original__ + ([torch.float32] if _is_cpu else [])",
    ),
    Insert(
        file=COMPRESSED,
        scope="CompressedTensorsConfig._check_scheme_supported",
        before=Find("assign", "capability_tuple"),
        code="""
        if _is_cpu:
            # No compute capability: a scheme without CPU kernels fails as it loads.
            return True
        """,
    ),
    ReplaceExpression(
        file=W4A4,
        scope="CompressedTensorsW4A4Fp4.get_min_capability",
        at=Find("return"),
        code="80 if get_fp4_gemm_runner_backend().is_triton() else __original__",
    ),
    Insert(
        file=W4A4,
        scope="CompressedTensorsW4A4Fp4.process_weights_after_loading",
        before=Find("assign", "global_input_scale"),
        code=f"""
        if get_fp4_gemm_runner_backend().is_triton():
            {IMPORT_PREPARE.strip()}

            layer.weight = layer.weight_packed
            del layer.weight_packed
            prepare_nvfp4_linear(
                layer,
                1 / layer.weight_global_scale,
                1 / layer.input_global_scale.max(),
            )
            return
        """,
    ),
    Insert(
        file=W4A4,
        scope="CompressedTensorsW4A4Fp4.apply_weights",
        before=Find("assign", "output_dtype"),
        code=f"""
        if get_fp4_gemm_runner_backend().is_triton():
            {IMPORT_APPLY.strip()}

            return apply_nvfp4_linear(layer, x, bias)
        """,
    ),
    Insert(
        file=W4A16,
        scope="CompressedTensorsW4A16Fp4.process_weights_after_loading",
        before=Find("assign", "global_scale"),
        code=f"""
        if get_fp4_gemm_runner_backend().is_triton():
            {IMPORT_PREPARE.strip()}

            layer.weight = layer.weight_packed
            del layer.weight_packed
            prepare_nvfp4_linear(layer, 1 / layer.weight_global_scale)
            return
        """,
    ),
    Insert(
        file=W4A16,
        scope="CompressedTensorsW4A16Fp4.apply_weights",
        before=Find("if", mentions=("use_flashinfer_bf16_fp4",)),
        code=f"""
        if get_fp4_gemm_runner_backend().is_triton():
            {IMPORT_APPLY.strip()}

            return apply_nvfp4_linear(layer, x, bias)
        """,
    ),
)

PATCH = Patch(
    number=800,
    title="[Kernel] Add --fp4-gemm-backend triton for NVFP4 linear layers",
    message="""\
## Motivation

Every backend for NVFP4 linear layers is FlashInfer's or Marlin's. On SM12x (RTX PRO
6000, RTX 50xx, GB10) people see wrong zeros for some M and tiles that do not fit, and
cannot read the kernels. Without a GPU an NVFP4 checkpoint does not load at all, so
nothing around it is tested in CI for CPUs.

## Modifications

- `--fp4-gemm-backend triton` serves W4A4 and W4A16 layers of ModelOpt and
  compressed-tensors checkpoints with the Triton kernels of `sgl_kernel_nvfp4`.
- The CPU engine takes it by itself and computes the same in PyTorch, in float32 too.
  Elsewhere `auto` chooses what it chose before.
- Projections that are fused keep their own weight scales.
- The fused SiLU and quantisation of Qwen3.5, which is FlashInfer's, stays off with
  backends that are not FlashInfer's; with Marlin it handed a tuple to the GEMM.

## Accuracy Tests

On the CPU, in float32 and bfloat16: layers against the weights that compressed-tensors
unpacks. In the fork's server tests, greedy tokens of NVFP4 checkpoints are those of
transformers with the same quantisation.

## Benchmark and Profiling

None: no SM12x card was at hand, so the curve M = 1 to 128 on real layer shapes, which
this change needs, is missing. Without the card, the fork's tests compile the kernels
for SM12x, and check the PTX for native FP4 MMA and for spills and, in an emulator, its
numbers.
""",
    edits=(*BACKEND, *CPU_METHODS, *MODELOPT_LAYERS, *COMPRESSED_LAYERS),
    overlay=(LAYER,),
    tests=("unit/layers/quantization/test_nvfp4_triton_linear.py",),
)
