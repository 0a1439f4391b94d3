"""Command lines that upstream answers with something else than what they ask."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GRAPHS = "cuda_graph_config"
SPECULATION = (
    "--speculative-num-steps 3 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens"
)


@dataclass(frozen=True)
class Case:
    """One setting that is not run as asked.

    Attributes:
        name: what happens, for the test's name.
        argv: the command line; ``{eagle}`` and the like stand for model folders.
        setting: the field, or the environment variable.
        asked: its raw value.
        effective: the value that runs.
        rule: who decides it.
        environment: variables that the user sets.
        read: where the resolved arguments hold the effective value, as a path; the
            field itself by default.
    """

    name: str
    argv: str
    setting: str
    asked: Any
    effective: Any
    rule: str
    environment: dict[str, str] = field(default_factory=dict)
    read: tuple[str, ...] | None = None


def words(argv: str, models: dict[str, Path]) -> list[str]:
    """The words of a command line, folders put for the models' names."""
    for name, folder in models.items():
        argv = argv.replace(f"{{{name}}}", str(folder))
    return argv.split()


CASES = (
    Case(
        "the CPU samples with PyTorch",
        "--sampling-backend flashinfer",
        "sampling_backend",
        "flashinfer",
        "pytorch",
        "_handle_cpu_backends",
    ),
    Case(
        "a device index is dropped",
        "--device cpu:0",
        "device",
        "cpu:0",
        "cpu",
        "_handle_missing_default_values",
    ),
    Case(
        "symmetric memory needs NCCL",
        "--enable-symm-mem",
        "enable_symm_mem",
        True,
        False,
        "_handle_symm_mem_device_support",
    ),
    Case(
        "there is no NCCL to warm",
        "--pre-warm-nccl",
        "pre_warm_nccl",
        True,
        False,
        "_handle_nccl_pre_warm",
    ),
    Case(
        "there is no CUDA graph to debug",
        "--debug-cuda-graph",
        "debug_cuda_graph",
        True,
        False,
        "_handle_environment_variables",
    ),
    Case(
        "torch_native is not captured",
        "--attention-backend torch_native --cuda-graph-backend-decode full",
        "cuda_graph_backend_decode",
        "full",
        "disabled",
        "_handle_attention_backend_compatibility",
        read=(GRAPHS, "decode", "backend"),
    ),
    Case(
        "flex_attention is not captured, whatever the JSON says",
        "--attention-backend flex_attention "
        '--cuda-graph-config {"decode":{"backend":"full"}}',
        "cuda_graph_config",
        {"decode": {"backend": "full"}},
        {"decode": {"backend": "disabled"}},
        "_handle_attention_backend_compatibility",
        read=(),
    ),
    Case(
        "a tensor dump switches graphs off",
        "--debug-tensor-dump-output-folder /tmp --cuda-graph-backend-decode full "
        "--attention-backend triton",
        "cuda_graph_backend_decode",
        "full",
        "disabled",
        "_handle_other_validations",
        read=(GRAPHS, "decode", "backend"),
    ),
    Case(
        "two split backends win over the one",
        "--attention-backend torch_native --prefill-attention-backend triton "
        "--decode-attention-backend triton",
        "attention_backend",
        "torch_native",
        "triton",
        "_attention_backend_default",
    ),
    Case(
        "FlashMLA has one page size",
        "--attention-backend flashmla --page-size 16",
        "page_size",
        16,
        64,
        "_mla_backend_page_constraints",
    ),
    Case(
        "a deprecated attention backend is renamed",
        "--attention-backend compressed",
        "attention_backend",
        "compressed",
        "dsv4",
        "_handle_deprecated_args",
    ),
    Case(
        "a deprecated parser is renamed",
        "--tool-call-parser qwen25",
        "tool_call_parser",
        "qwen25",
        "qwen",
        "_handle_deprecated_args",
    ),
    Case(
        "NGRAM does not mix chunks",
        "--speculative-algorithm NGRAM --enable-mixed-chunk",
        "enable_mixed_chunk",
        True,
        False,
        "_handle_ngram",
    ),
    Case(
        "NGRAM has a width of its own",
        "--speculative-algorithm NGRAM --speculative-eagle-topk 4",
        "speculative_eagle_topk",
        4,
        10,
        "_handle_ngram",
    ),
    Case(
        "a chain verifies its steps and one",
        "--speculative-algorithm STANDALONE --speculative-draft-model-path {llama} "
        f"{SPECULATION} 8",
        "speculative_num_draft_tokens",
        8,
        4,
        "_handle_eagle_family",
    ),
    Case(
        "STANDALONE does not mix chunks",
        "--speculative-algorithm STANDALONE --speculative-draft-model-path {llama} "
        "--enable-mixed-chunk",
        "enable_mixed_chunk",
        True,
        False,
        "_handle_eagle_family",
    ),
    Case(
        "EAGLE is given an EAGLE3 draft",
        f"--speculative-algorithm eagle --speculative-draft-model-path {{eagle3}} "
        f"{SPECULATION} 4",
        "speculative_algorithm",
        "eagle",
        "EAGLE with an EAGLE3 draft",
        "draft architecture",
        read=(),
    ),
    Case(
        "EAGLE3 is given an EAGLE draft",
        f"--speculative-algorithm EAGLE3 --speculative-draft-model-path {{eagle}} "
        f"{SPECULATION} 4",
        "speculative_algorithm",
        "EAGLE3",
        "EAGLE3 with an EAGLE draft",
        "draft architecture",
        read=(),
    ),
    Case(
        "a Gemma4 assistant is promoted",
        "--speculative-algorithm EAGLE --speculative-draft-model-path {gemma4} "
        f"{SPECULATION} 4",
        "speculative_algorithm",
        "EAGLE",
        "FROZEN_KV_MTP",
        "handle_speculative_decoding",
    ),
    Case(
        "attention data parallelism scales conservativeness",
        "--tp-size 2 --attn-dp-size 2 --schedule-conservativeness 0.5",
        "schedule_conservativeness",
        0.5,
        0.15,
        "_handle_data_parallelism",
    ),
    Case(
        "attention data parallelism divides the chunk",
        "--tp-size 2 --attn-dp-size 2 --chunked-prefill-size 512",
        "chunked_prefill_size",
        512,
        256,
        "_handle_data_parallelism",
    ),
    Case(
        "a vocabulary-parallel head needs data parallelism",
        "--enable-dp-lm-head",
        "enable_dp_lm_head",
        True,
        False,
        "_data_parallelism_defaults",
    ),
    Case(
        "Waterfill brings its all-to-all",
        "--enable-waterfill --moe-a2a-backend none",
        "moe_a2a_backend",
        "none",
        "deepep",
        "_a2a_backend_overrides",
    ),
    Case(
        "DeepEP spans the tensor-parallel group, though the default was typed",
        "--moe-a2a-backend deepep --tp-size 2 --ep-size 1",
        "ep_size",
        1,
        2,
        "_a2a_ep_size",
    ),
    Case(
        "a HiCache layout brings its I/O backend",
        "--enable-hierarchical-cache --hicache-mem-layout page_first_direct "
        "--hicache-io-backend kernel",
        "hicache_io_backend",
        "kernel",
        "direct",
        "_resolve_layout_io_compatibility",
    ),
    Case(
        "a HiCache I/O backend brings its layout",
        "--enable-hierarchical-cache --hicache-mem-layout page_first "
        "--hicache-io-backend direct",
        "hicache_mem_layout",
        "page_first",
        "page_first_direct",
        "_resolve_layout_io_compatibility",
    ),
    Case(
        "Mooncake brings its layout",
        "--enable-hierarchical-cache --hicache-storage-backend mooncake "
        "--hicache-mem-layout layer_first",
        "hicache_mem_layout",
        "layer_first",
        "page_first",
        "_resolve_storage_layout_compatibility",
    ),
    Case(
        "a buffer on the host is written through",
        "--enable-hierarchical-cache --hicache-storage-backend file "
        "--hicache-host-memory-mode buffer_only --hicache-write-policy write_back",
        "hicache_write_policy",
        "write_back",
        "write_through",
        "_validate_hicache_host_memory_mode",
    ),
    Case(
        "a HiCache ratio switches its sizing off",
        "--hicache-ratio 2.0 --hicache-host-memory-fraction 0.5",
        "hicache_host_memory_fraction",
        0.5,
        None,
        "_handle_hicache_ratio_default",
    ),
    Case(
        "optimistic prefill does not pipeline",
        "--disaggregation-mode prefill --pp-size 2 --optimistic-prefill-attempts 2",
        "optimistic_prefill_attempts",
        2,
        0,
        "_handle_other_validations",
    ),
    Case(
        "captured batches bound the compiled ones",
        "--cuda-graph-bs-decode 1 2 4 --torch-compile-max-bs 16",
        "torch_compile_max_bs",
        16,
        4,
        "_handle_gpu_memory_settings",
    ),
    Case(
        "the CPU sizes graphs by what it compiles",
        "--cuda-graph-max-bs-decode 16 --torch-compile-max-bs 32",
        "cuda_graph_max_bs_decode",
        16,
        32,
        "_handle_gpu_memory_settings",
        read=(GRAPHS, "decode", "max_bs"),
    ),
    Case(
        "a variable goes before its flag",
        "--prefill-delayer-max-delay-passes 5",
        "prefill_delayer_max_delay_passes",
        5,
        9,
        "_handle_prefill_delayer_env_compat",
        environment={"SGLANG_PREFILL_DELAYER_MAX_DELAY_PASSES": "9"},
    ),
    Case(
        "the variable of torch.compile is overwritten",
        "",
        "SGLANG_ENABLE_TORCH_COMPILE",
        "1",
        "0",
        "handle_environment_variables",
        environment={"SGLANG_ENABLE_TORCH_COMPILE": "1"},
        read=(),
    ),
    Case(
        "the variable of Outlines' cache is overwritten",
        "",
        "SGLANG_DISABLE_OUTLINES_DISK_CACHE",
        "1",
        "0",
        "handle_environment_variables",
        environment={"SGLANG_DISABLE_OUTLINES_DISK_CACHE": "1"},
        read=(),
    ),
)

CLEAN = (
    "",
    "--page-size 64",
    "--attention-backend triton --sampling-backend pytorch",
    "--attention-backend torch_native --cuda-graph-backend-decode disabled",
    "--dtype half --kv-cache-dtype bf16",
    "--quantization unquant --context-length 2048",
    "--disable-radix-cache --disable-overlap-schedule",
    "--disable-cuda-graph",
    "--chunked-prefill-size 512 --max-running-requests 8",
    "--tp-size 2 --dp-size 2 --enable-dp-attention",
    "--load-format auto --grammar-backend xgrammar --random-seed 7",
    "--speculative-algorithm ngram --speculative-num-draft-tokens 8",
    "--speculative-algorithm Eagle3 --speculative-draft-model-path {eagle3} "
    f"{SPECULATION} 4",
    "--enable-hierarchical-cache --hicache-mem-layout page_first_direct "
    "--hicache-io-backend direct",
    "--mem-fraction-static 0.5 --served-model-name tiny --log-level warning",
    '--preferred-sampling-params {"temperature":0.5} --enable-metrics',
)
