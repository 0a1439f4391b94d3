"""What was requested and what was resolved differ in one report, never in silence."""

from patches.engine.edits import (
    AddImport,
    ExtendCollection,
    Insert,
    ReplaceExpression,
    ReplaceStatement,
)
from patches.engine.patch import Edit, Patch
from patches.engine.place import Find

REMAP = "sglang.srt.arg_groups.remap"
SERVER_ARGS = "srt/server_args.py"
HOOKS = "srt/arg_groups/resolution_hooks.py"
SPEC_HOOK = "srt/arg_groups/speculative_hook.py"
ALIAS = "_resolve_speculative_algorithm_alias"
ENGINE = "srt/entrypoints/engine.py"
LAUNCH = "launch_server.py"
HTTP = "srt/entrypoints/http_server.py"
COMMON = "srt/utils/common.py"
FLASHINFER = "srt/layers/attention/flashinfer_backend.py"
GRAPHS = "srt/model_executor/model_runner_components/cuda_graph_setup.py"
STATE = "srt/managers/scheduler_components/internal_state.py"

FIELD = (
    Insert(
        file="srt/arg_groups/fields/observability.py",
        scope="Observability",
        after=Find("assign", "log_level_http"),
        code="""
        remap_policy: A[
            str,
            Arg(
                help="What to do when a setting that you gave runs with another value: "
                "'warn' logs one line for each, 'error' lists them all and stops "
                "before any weight is loaded, 'silent' logs nothing. "
                "/server_info and the metric sglang:remap_info list them in any case.",
                choices=["warn", "error", "silent"],
            ),
        ] = "warn"
        """,
    ),
    ExtendCollection(
        file="srt/arg_groups/field_order.py",
        at=Find("assign", "POSITIONAL_FIELD_ORDER"),
        code='"remap_policy"',
    ),
)

REQUESTS = (
    Insert(
        file=SERVER_ARGS,
        scope="prepare_server_args",
        before=Find("if", mentions=("--config", "argv")),
        code="command_line = argv",
    ),
    Insert(
        file=SERVER_ARGS,
        scope="prepare_server_args",
        after=Find("assign", "server_args"),
        code="""
        from sglang.srt.arg_groups.remap.requested import record_command_line

        record_command_line(server_args, parser, command_line)
        """,
    ),
    Insert(
        file=ENGINE,
        scope="Engine.__init__",
        before=Find("if", mentions=("log_level", "kwargs")),
        code="keywords = tuple(kwargs)",
    ),
    Insert(
        file=ENGINE,
        scope="Engine.__init__",
        after=Find("assign", "server_args", mentions=("server_args_class",)),
        code="record_keywords(server_args, keywords)",
    ),
    AddImport(
        file=ENGINE,
        module=f"{REMAP}.requested",
        names=("record_keywords",),
        after="sglang.srt.arg_groups.remap.report",
    ),
)

RESOLUTION = (
    Insert(
        file=SERVER_ARGS,
        scope="ServerArgs.resolve_once",
        before=Find("if", mentions=("mps", "dummy")),
        code="""
        from sglang.srt.arg_groups.remap.report import conclude_remaps

        conclude_remaps(self)
        """,
    ),
    AddImport(
        file=HOOKS,
        module=f"{REMAP}.environment",
        names=("watch_environment",),
        after="typing",
    ),
    ReplaceStatement(
        file=HOOKS,
        scope="run_hook",
        at=Find("call statement", "step"),
        code="""
        with watch_environment(server_args, builtin.__name__):
            step(server_args)
        """,
    ),
    # The report says both.
    ReplaceStatement(
        file=SPEC_HOOK,
        scope=ALIAS,
        at=Find("call statement", "logger.warning", nth=0, of=2),
        code="",
    ),
    ReplaceStatement(
        file=SPEC_HOOK,
        scope=ALIAS,
        at=Find("if", mentions=("speculative_algorithm", "NEXTN"), nth=1, of=2),
        code="",
    ),
)

REPORT = (
    AddImport(
        file=ENGINE,
        module=f"{REMAP}.report",
        names=("log_remap_report",),
        after="sglang.srt.arg_groups.overrides",
    ),
    AddImport(
        file=ENGINE,
        module=f"{REMAP}.environment",
        names=("watch_environment",),
        after="sglang.srt.arg_groups.overrides",
    ),
    ReplaceStatement(
        file=ENGINE,
        scope="Engine._launch_subprocesses",
        at=Find("call statement", "_set_envs_and_config"),
        code="""
        with watch_environment(server_args, "_set_envs_and_config"):
            _set_envs_and_config(server_args)
        """,
    ),
    Insert(
        file=ENGINE,
        scope="Engine._launch_subprocesses",
        after=Find("call statement", "logger.info", mentions=("server_args",)),
        code="log_remap_report(server_args)",
    ),
    AddImport(
        file=LAUNCH,
        module=f"{REMAP}.report",
        names=("RemapError", "log_remap_report"),
        after="sglang.srt.arg_groups.overrides",
    ),
    ReplaceStatement(
        file=LAUNCH,
        scope="run_server",
        at=Find("call statement", "server_args.resolve_once"),
        code="""
        try:
            server_args.resolve_once()
        except RemapError as error:
            sys.exit(str(error))
        """,
    ),
    Insert(
        file=LAUNCH,
        scope="run_server",
        after=Find("assign", "cfg"),
        code="""
        # The other servers log the report after their server_args.
        if cfg.encoder_only or cfg.smg_grpc_mode:
            log_remap_report(server_args)
        """,
    ),
)


def late_import(name: str) -> str:
    """Import a name of the late door where it is used, once it is used."""
    return f"from {REMAP}.late import {name}\n"


SERVER_INFO = (
    Insert(
        file=COMMON,
        scope="build_server_info",
        after=Find("assign", "result", mentions=("resolved_dict",)),
        code=late_import("all_remaps") + 'result["remaps"] = all_remaps(server_args)',
    ),
    AddImport(
        file=HTTP,
        module=f"{REMAP}.late",
        names=("all_remaps",),
        after="fastapi.responses",
    ),
    ExtendCollection(
        file=HTTP,
        scope="server_info",
        at=Find("collection", mentions=("startup_time", "internal_states")),
        code='"remaps": all_remaps(server_args, internal_states)',
    ),
    AddImport(
        file=ENGINE,
        module=f"{REMAP}.late",
        names=("all_remaps",),
        after="sglang.srt.arg_groups.overrides",
    ),
    ExtendCollection(
        file=ENGINE,
        scope="Engine.get_server_info",
        at=Find("collection", mentions=("startup_time", "internal_states")),
        code="""
        "remaps": all_remaps(self.tokenizer_manager.server_args, internal_states)
        """,
    ),
    Insert(
        file=STATE,
        scope="SchedulerInternalStateController.get_internal_state",
        after=Find("for"),
        code=late_import("late_remaps")
        + 'state["remaps"] = late_remaps(self.scheduler.server_args)',
    ),
    Insert(
        file="srt/observability/metrics_collector.py",
        scope="TokenizerMetricsCollector.__init__",
        after=Find("assign", "self.labels"),
        code=f"""
        if server_args is not None:
            from {REMAP}.metrics import export_remaps

            export_remaps(server_args, getattr(server_args, "_remaps", ()))
        """,
    ),
)


def report_late(
    file: str,
    scope: str,
    code: str,
    *,
    after: Find | None = None,
    before: Find | None = None,
    releases: str = "",
) -> Edit:
    """Call the door for late remaps at a place where a setting is decided."""
    return Insert(
        file=file,
        scope=scope,
        code=late_import("report_late_remap") + code,
        after=after,
        before=before,
        releases=releases,
    )


LATE = (
    Insert(
        file="srt/runtime_context.py",
        scope="RuntimeContext.override",
        after=Find("call statement", "self._overrides_log.append"),
        code=late_import("report_overrides")
        + "report_overrides(self._server_args, source, fields)",
    ),
    report_late(
        "srt/layers/quantization/fp4_utils.py",
        "initialize_fp4_gemm_config",
        """
report_late_remap(
    "fp4_gemm_runner_backend",
    effective=FP4_GEMM_RUNNER_BACKEND.value,
    rule="initialize_fp4_gemm_config",
)
""",
        after=Find("assign", "FP4_GEMM_RUNNER_BACKEND"),
    ),
    report_late(
        "srt/layers/quantization/fp8_utils.py",
        "initialize_fp8_gemm_config",
        """
report_late_remap(
    "fp8_gemm_runner_backend",
    effective=backend.value,
    rule="initialize_fp8_gemm_config",
)
""",
        after=Find("assign", "FP8_GEMM_RUNNER_BACKEND"),
    ),
    report_late(
        "srt/layers/quantization/unquant.py",
        "initialize_bf16_gemm_config",
        """
report_late_remap(
    "bf16_gemm_backend",
    effective=backend.value,
    rule="initialize_bf16_gemm_config",
)
""",
        after=Find("assign", "backend"),
    ),
    report_late(
        "srt/layers/moe/moe_runner/runner.py",
        "MoeRunner.__init__",
        """from sglang.srt.runtime_context import get_flags

in_draft = get_flags().moe.in_speculative_scope
report_late_remap(
    "speculative_moe_runner_backend" if in_draft else "moe_runner_backend",
    effective=runner_backend.value,
    rule="MoeRunner",
)
""",
        after=Find("assign", "self.lora_enabled"),
    ),
    report_late(
        "srt/speculative/draft_utils.py",
        "DraftBackendFactory._create_backend",
        """
report_late_remap(
    "speculative_draft_attention_backend",
    effective=stamp,
    rule="DraftBackendFactory",
)
""",
        after=Find("assign", mentions=("stamp", "backend_map")),
    ),
    Insert(
        file="srt/configs/model_config.py",
        scope="ModelConfig.__init__",
        after=Find("call statement", "self._verify_quantization"),
        code=f"""
        if is_draft_model:
            from {REMAP}.late import report_late_remap

            report_late_remap(
                "speculative_draft_model_quantization",
                effective=self.quantization,
                rule="ModelConfig._verify_quantization",
            )
        """,
    ),
    report_late(
        "srt/mem_cache/kv_cache_configurator.py",
        "KVCacheConfigurator.resolve_max_num_reqs",
        """
if requested_per_worker is not None and max_num_reqs < requested_per_worker:
    report_late_remap(
        "max_running_requests",
        effective=max_num_reqs * self.attn_dp_size,
        rule="KVCacheConfigurator.resolve_max_num_reqs",
    )
""",
        before=Find("return"),
    ),
    report_late(
        "srt/managers/scheduler.py",
        "Scheduler.init_chunked_prefill",
        """
if self.chunked_prefill_size is None and (get_schedule().chunked_prefill_size or 0) > 0:
    report_late_remap(
        "chunked_prefill_size",
        effective=-1,
        rule="Scheduler.init_chunked_prefill",
    )
""",
        before=Find("assign", "self.chunked_req"),
    ),
    report_late(
        "srt/model_executor/model_runner_components/load_model_utils.py",
        "load_model_with_memory_saver",
        """
report_late_remap(
    "enable_weights_cpu_backup",
    effective=False,
    rule="load_model_with_memory_saver",
)
""",
        after=Find("assign", "enable_cpu_backup", mentions=("False",)),
    ),
    report_late(
        "srt/managers/scheduler_components/metrics_reporter.py",
        "SchedulerMetricsReporter._init_metrics",
        """
if not self.enable_metrics:
    report_late_remap(
        "enable_mfu_metrics", effective=False, rule="SchedulerMetricsReporter"
    )
""",
        before=Find("assign", "self.decode_log_interval"),
    ),
    *(
        report_late(
            "srt/model_executor/runner/decode_cuda_graph_runner.py",
            f"DecodeCudaGraphRunner.{capture}",
            """
report_late_remap(
    "enable_torch_compile", effective=False, rule="DecodeCudaGraphRunner"
)
""",
            after=Find("assign", "self.enable_torch_compile"),
            releases=releases,
        )
        for releases, capture in ((">=0.5.23", "_capture"), ("<0.5.23", "capture"))
    ),
    AddImport(
        file=FLASHINFER,
        module=f"{REMAP}.late",
        names=("overwriter",),
        after="sglang.srt.runtime_context",
    ),
    ReplaceExpression(
        file=FLASHINFER,
        scope="FlashInferAttnBackend.__init__",
        at=Find("attribute", "envs.SGLANG_FLASHINFER_WORKSPACE_SIZE.set"),
        code="""
        overwriter(envs.SGLANG_FLASHINFER_WORKSPACE_SIZE, "FlashInferAttnBackend")
        """,
        sites=2,
    ),
    Insert(
        file=GRAPHS,
        before="capture_decode_graph",
        code=f"""
        def _no_capture_of(model_runner: ModelRunner, capture: GraphCapture):
            if not model_runner.is_draft_worker:
                from {REMAP}.late import report_late_remap

                report_late_remap(
                    "cuda_graph_backend_decode",
                    effective=Backend.DISABLED,
                    rule="capture_decode_graph",
                )
            return capture
        """,
    ),
    ReplaceExpression(
        file=GRAPHS,
        scope="capture_decode_graph",
        at=Find("return", mentions=("no_capture",)),
        code="_no_capture_of(model_runner, __original__)",
        sites=5,
    ),
)

PATCH = Patch(
    number=210,
    title="[Feature] Report requested versus resolved settings, and refuse on demand",
    message="""\
## Motivation

A setting that the user typed may run with another value: a hook changes it at INFO, at
WARNING or not at all, a load-time gate overrides it, an environment variable is
overwritten. Nobody sees it until the server is slow.

## Modifications

- What the user set is remembered: command line, config file, `Engine` keyword.
- At the end of resolution the raw input and the journal (`_raw_input`,
  `_resolved_overrides`) are compared. Each setting that the user set and that differs
  gets one WARNING line after the `server_args` dump: asked, effective, the rule that
  decided it, why, and what to type. Untouched defaults are one table at INFO.
- What is decided later goes through the same door: every `RuntimeContext.override`, the
  FP4, FP8 and BF16 GEMM backends, the MoE runner, the draft's attention backend and
  quantization, and decode graphs that are not captured.
- `--remap-policy {warn,error,silent}`: `error` lists all and stops before weights load.
- `/server_info` has `remaps`; `sglang:remap_info` is the metric.
- A draft of another kind than the algorithm (EAGLE with an EAGLE3 draft) is reported.

## Accuracy Tests

None: with `warn`, the default, no resolved argument changes.
""",
    edits=(*FIELD, *REPORT, *REQUESTS, *RESOLUTION, *SERVER_INFO, *LATE),
    overlay=("srt/arg_groups/remap",),
    tests=("unit/arg_groups/remap",),
)
