"""Why a rule changes a setting, where upstream's rule carries no reason.

Keyed by rule; by rule and setting where one rule decides several; and by the effective
value too where it has several reasons. Each entry says what the rule's code tests. A
rule that is not here is named by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reason:
    """Attributes:
    why: a clause without a full stop.
    keep: how to get the asked value, as an instruction without a full stop; None if
        nothing does.
    """

    why: str
    keep: str | None = None


REASONS: dict[str | tuple[str, ...], Reason] = {
    ("handle_speculative_decoding", "speculative_algorithm", "FROZEN_KV_MTP"): Reason(
        "a Gemma4 assistant draft reads the target's KV cache"
    ),
    "_handle_cpu_backends": Reason("the CPU engine samples with PyTorch"),
    "_handle_hpu_backends": Reason("HPU has only this backend"),
    "_disable_overlap_schedule_for_cpu": Reason(
        "speculative decoding on the CPU has no overlap schedule",
        "leave out --speculative-algorithm",
    ),
    "_pipeline_parallel_overlap_disable": Reason(
        "pipeline parallelism does not run with the overlap schedule",
        "use --pp-size 1",
    ),
    "_handle_nccl_pre_warm": Reason("this device has no NCCL to warm"),
    "_handle_symm_mem_device_support": Reason(
        "NCCL symmetric memory needs CUDA or ROCm"
    ),
    ("_handle_environment_variables", "debug_cuda_graph"): Reason(
        "there are CUDA graphs on CUDA and ROCm only"
    ),
    "handle_environment_variables": Reason(
        "the server argument of the same name decides this variable",
        "give the server argument instead",
    ),
    "_handle_prefill_delayer_env_compat": Reason(
        "an SGLANG_* variable of the prefill delayer is set and goes before the flag",
        "unset the variable",
    ),
    ("_handle_missing_default_values", "device"): Reason(
        "a device index in --device is dropped",
        "choose the device with --base-gpu-id",
    ),
    "_handle_deprecated_args": Reason("the asked name is deprecated and stands for it"),
    "_attention_backend_default": Reason(
        "--prefill-attention-backend and --decode-attention-backend agree on another"
    ),
    "_attention_backend_fa3_fp8_fallback": Reason(
        "FA3 does not read this FP8 KV cache"
    ),
    ("_handle_attention_backend_compatibility", "cuda_graph_config"): Reason(
        "this attention backend cannot be captured"
    ),
    "_mla_backend_page_constraints": Reason(
        "the attention backend takes only certain page sizes",
        "choose another --attention-backend",
    ),
    "_fa4_page_constraint": Reason("FA4 takes only certain page sizes"),
    "_intel_xpu_page_constraint": Reason("the XPU backend takes only certain pages"),
    "_deterministic_sampling_backend": Reason(
        "deterministic inference samples with PyTorch",
        "leave out --enable-deterministic-inference",
    ),
    "_deterministic_allreduce_fusion_disable": Reason(
        "deterministic inference does not fuse all-reduce",
        "leave out --enable-deterministic-inference",
    ),
    "_mamba_radix_cache_resolution": Reason(
        "prefix caching of a hybrid model without an extra buffer needs it",
        "use --mamba-radix-cache-strategy extra_buffer or --disable-radix-cache",
    ),
    "_data_parallelism_defaults": Reason("there is one data-parallel rank"),
    ("_handle_gpu_memory_settings", "cuda_graph_config"): Reason(
        "--torch-compile-max-bs decides on the CPU, the largest batch elsewhere"
    ),
    ("_handle_gpu_memory_settings", "torch_compile_max_bs"): Reason(
        "the largest batch of --cuda-graph-bs-decode decides"
    ),
    ("_handle_data_parallelism", "schedule_conservativeness"): Reason(
        "attention data parallelism scales it by 0.3"
    ),
    ("_handle_data_parallelism", "chunked_prefill_size"): Reason(
        "attention data parallelism divides it among the ranks"
    ),
    "_a2a_ep_size": Reason("this all-to-all backend spans the tensor-parallel group"),
    "_a2a_backend_overrides": Reason("Waterfill needs DeepEP or MegaMoE"),
    "_moe_runner_fusion_disable": Reason(
        "this MoE runner does not serve fused shared experts"
    ),
    ("_handle_eagle_family", "speculative_num_draft_tokens"): Reason(
        "a chain of drafts (top-k 1) verifies one token more than it has steps",
        "set --speculative-num-steps to one less",
    ),
    ("_handle_eagle_family", "enable_mixed_chunk"): Reason(
        "this speculative algorithm does not run with mixed chunks"
    ),
    ("_handle_ngram", "speculative_eagle_topk"): Reason(
        "NGRAM takes its width from --speculative-ngram-max-bfs-breadth",
        "set --speculative-ngram-max-bfs-breadth",
    ),
    ("_handle_ngram", "enable_mixed_chunk"): Reason(
        "NGRAM does not run with mixed chunks"
    ),
    "_init_adaptive_speculative_params": Reason(
        "adaptive speculation verifies one token more than it has steps",
        "set --speculative-num-steps to one less",
    ),
    "_resolve_layout_io_compatibility": Reason(
        "the HiCache memory layout and I/O backend do not go together"
    ),
    "_resolve_storage_layout_compatibility": Reason(
        "this HiCache storage does not take the layer_first layout"
    ),
    "_resolve_unified_memory_layout_io": Reason(
        "the direct I/O backend cannot copy the rows of the unified pool"
    ),
    "_validate_hicache_host_memory_mode": Reason(
        "buffer_only keeps nothing on the host that could be written back"
    ),
    "_handle_hicache_ratio_default": Reason(
        "--hicache-ratio or --hicache-size turns automatic sizing off"
    ),
    ("_handle_other_validations", "skip_server_warmup"): Reason(
        "tensor dumps leave the warmup out"
    ),
    ("_handle_other_validations", "cuda_graph_config"): Reason(
        "tensor dumps run without graphs"
    ),
    ("_handle_other_validations", "optimistic_prefill_attempts"): Reason(
        "optimistic prefill does not run with pipeline parallelism or this HiCache mode"
    ),
    ("_handle_model_capability_adjustments", "chunked_prefill_size"): Reason(
        "this model reads a prompt in one piece"
    ),
    ("_handle_model_capability_adjustments", "disable_radix_cache"): Reason(
        "prefixes of this model cannot be reused"
    ),
    "_hrm_text_attention_force": Reason(
        "only Triton has the bidirectional prefix attention of HRM-Text"
    ),
    "_handle_dllm_inference": Reason("diffusion LLM inference does not run with it"),
    "_dllm_overlap_disable": Reason("diffusion LLM inference does not run with it"),
    "_dllm_page_size": Reason("the page follows the block of the diffusion LLM"),
    "_dllm_attention_backend": Reason("diffusion LLM inference needs this backend"),
    "_gguf_quantization": Reason("the checkpoint is a GGUF file"),
    "MODEL_OVERRIDES['MistralLarge3ForCausalLM']": Reason("the model needs bfloat16"),
    "MODEL_OVERRIDES['PixtralForConditionalGeneration']": Reason(
        "the model needs bfloat16"
    ),
    "ModelConfig._verify_quantization": Reason(
        "the checkpoint's own quantization has another method for it"
    ),
    "ModelRunner._sm80_dtype_fallback": Reason("this GPU has no bfloat16"),
    "grammar.import_fallback": Reason("xgrammar does not support the tokenizer"),
    "model_runner.chunked_prefix_cache_gate": Reason(
        "the model or its attention backend does not read chunked prefixes"
    ),
    "hicache.auto_size": Reason("the host has no memory for more"),
    "mamba_pool.per_dp_shard": Reason("each data-parallel rank gets its share"),
    "KVCacheConfigurator.resolve_max_num_reqs": Reason(
        "the KV cache or the state cache holds no more requests",
        "raise --mem-fraction-static",
    ),
    "Scheduler.init_chunked_prefill": Reason(
        "a multimodal model of the Transformers backend reads a prompt in one piece"
    ),
    "load_model_with_memory_saver": Reason(
        "weights that another process shares cannot be offloaded"
    ),
    "SchedulerMetricsReporter": Reason("it is a metric", "add --enable-metrics"),
    "DecodeCudaGraphRunner": Reason("the model cannot be compiled"),
    "FlashInferAttnBackend": Reason(
        "FlashInfer needs this workspace for the model or for deterministic inference"
    ),
    "_set_envs_and_config": Reason("SGLang sets this variable for its kernels"),
    "MoeRunner": Reason("the quantization of the MoE layers decides their runner"),
    "DraftBackendFactory": Reason("the draft cannot run this backend in this phase"),
    "capture_decode_graph": Reason(
        "this device or model does not capture decode steps here"
    ),
}


def reason_for(
    server_args: Any, rule: str, setting: str, effective: Any
) -> Reason | None:
    """Return the reason that the rule gave, or the one that is known; None if none."""
    given = getattr(server_args, "_remap_reasons", {})
    if setting.startswith("cuda_graph_"):
        setting = "cuda_graph_config"
    return (
        given.get((rule, setting))
        or REASONS.get((rule, setting, str(effective)))
        or REASONS.get((rule, setting))
        or REASONS.get(rule)
    )


def give_reason(
    server_args: Any, rule: str, setting: str, why: str, keep: str | None = None
) -> None:
    """Say, from inside a rule, why it changes a setting; the report prints it."""
    if not hasattr(server_args, "_remap_reasons"):
        server_args._remap_reasons = {}
    server_args._remap_reasons[rule, setting] = Reason(why.rstrip("."), keep)
