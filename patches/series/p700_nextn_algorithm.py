"""NEXTN becomes an algorithm of its own, from the flag to the metrics."""

from patches.engine.edits import (
    AddImport,
    AdmitMember,
    Insert,
    ReplaceExpression,
    ReplaceStatement,
)
from patches.engine.patch import Edit, Patch
from patches.engine.place import Find

SPEC_INFO = "srt/speculative/spec_info.py"
SPEC_REGISTRY = "srt/speculative/spec_registry.py"
REGISTRY = "sglang.srt.speculative.spec_registry"
AUX_STATE = "srt/model_executor/model_runner_components/spec_aux_hidden_state.py"
SPEC_HOOK = "srt/arg_groups/speculative_hook.py"
ENUM = "SpeculativeAlgorithm"


def admit_string(
    file: str, sites: int = 1, scope: str = "", releases: str = ""
) -> Edit:
    """Let the name NEXTN through wherever a file lets the name EAGLE through."""
    return AdmitMember(
        file=file,
        scope=scope,
        like="EAGLE",
        new="NEXTN",
        sites=sites,
        releases=releases,
    )


def admit_member(
    file: str, sites: int = 1, scope: str = "", releases: str = ""
) -> Edit:
    """Let the enum member NEXTN through wherever a file lets EAGLE through."""
    return AdmitMember(
        file=file,
        scope=scope,
        like=f"{ENUM}.EAGLE",
        new=f"{ENUM}.NEXTN",
        sites=sites,
        releases=releases,
    )


ALGORITHM = (
    Insert(
        file=SPEC_INFO,
        scope=ENUM,
        after=Find("assign", "EAGLE3"),
        code="NEXTN = auto()",
    ),
    admit_member(SPEC_INFO, scope=f"{ENUM}.is_eagle"),
    admit_member(SPEC_INFO, scope=f"{ENUM}.supports_mixed_chunk"),
    Insert(
        file=SPEC_INFO,
        scope=ENUM,
        after="is_eagle3",
        code='''
        def is_nextn(self) -> bool:
            """Whether the draft is the MTP head of the target's own checkpoint."""
            return self == SpeculativeAlgorithm.NEXTN
        ''',
    ),
    Insert(
        file=SPEC_INFO,
        scope=f"{ENUM}.create_worker",
        before=Find("if", mentions=("is_eagle", "enable_multi_layer_eagle")),
        code="""
        if self.is_nextn():
            from sglang.srt.speculative.nextn.worker import NextnWorker

            return NextnWorker
        """,
    ),
    # The member itself keeps plugins off the name; no alias is left.
    ReplaceStatement(
        file=SPEC_INFO,
        scope=f"{ENUM}.from_string",
        at=Find("if", mentions=("_RESERVED_ALIASES",)),
        code="",
    ),
    ReplaceStatement(
        file=SPEC_INFO,
        at=Find("import", REGISTRY, mentions=("_RESERVED_ALIASES",)),
        code=f"""
        from {REGISTRY} import (
            CustomSpecAlgo,
            ServerArgsValidator,
            WorkerFactory,
        )
        """,
    ),
    ReplaceExpression(
        file=SPEC_REGISTRY,
        at=Find("collection", mentions=("NEXTN",)),
        code="()",
    ),
    Insert(
        file=SPEC_REGISTRY,
        scope="CustomSpecAlgo",
        after="is_eagle3",
        code="""
        def is_nextn(self) -> bool:
            return False
        """,
    ),
)

RESOLUTION = (
    ReplaceExpression(
        file=SPEC_HOOK,
        scope="_resolve_speculative_algorithm_alias",
        at=Find("if", mentions=("NEXTN", "EAGLE")),
        code='speculative_algorithm in ("EAGLE", "NEXTN")',
    ),
    ReplaceExpression(
        file=SPEC_HOOK,
        scope="_resolve_speculative_algorithm_alias",
        at=Find("return", mentions=("EAGLE",)),
        code="speculative_algorithm",
    ),
    Insert(
        file=SPEC_HOOK,
        scope="handle_speculative_decoding",
        after=Find(
            "call statement",
            "declare_resolution",
            mentions=("_resolve_speculative_algorithm_alias",),
        ),
        code="""
        if cfg.speculative_algorithm == "NEXTN":
            from sglang.srt.speculative.nextn.algorithm import resolve_nextn_algorithm

            declare_resolution(
                server_args,
                "resolve_nextn_algorithm",
                speculative_algorithm=resolve_nextn_algorithm(
                    cfg, model_config_of(server_args).hf_config
                ),
            )
        """,
    ),
)

CONFIGURATION = (
    AddImport(
        file=AUX_STATE,
        module="sglang.srt.speculative.nextn.model_config",
        names=("head_model_config",),
        after="sglang.srt.runtime_context",
    ),
    ReplaceExpression(
        file=AUX_STATE,
        scope="_resolve_eagle_aux_hidden_state",
        at=Find("assign", "draft_mode_config"),
        code="""
        head_model_config(model_config)
        if spec_algorithm.is_nextn()
        else __original__
        """,
    ),
    # Whoever drafts with the target's own head pays for its KV in every token.
    ReplaceExpression(
        file=AUX_STATE,
        scope="_resolve_eagle_aux_hidden_state",
        at=Find("assign", "draft_model_config"),
        code="""
        draft_mode_config
        if draft_path or spec_algorithm.is_nextn()
        else model_config
        """,
    ),
)

# AdmitMember skips a collection that names NEXTN already; each count is of the places
# that knew EAGLE alone.
SITES = (
    admit_string("srt/lora/utils.py"),
    admit_string("srt/layers/attention/attention_registry.py"),
    admit_string("srt/speculative/adaptive_spec_params.py"),
    admit_string("srt/arg_groups/deepseek_v4_hook.py", sites=2),
    admit_string("srt/arg_groups/kv_shard_hook.py", releases=">=0.5.23"),
    admit_string("srt/arg_groups/kv_cache_hook.py", sites=4),
    admit_string("srt/arg_groups/validation_hook.py", sites=2),
    admit_string(SPEC_HOOK, scope="_should_auto_enable_hip_rejection_sampling"),
    admit_string(SPEC_HOOK, scope="handle_speculative_decoding", sites=5),
    admit_string(SPEC_HOOK, scope="_handle_eagle_family"),
    admit_string("srt/arg_groups/model_overrides/gigachat35.py"),
    admit_string("srt/arg_groups/model_overrides/mimo_v2.py"),
    admit_string("srt/arg_groups/overrides.py", sites=2),
    admit_string("srt/arg_groups/lora_hook.py"),
    admit_member(
        "srt/managers/scheduler_components/metrics_reporter.py", releases=">=0.5.23"
    ),
    admit_member("srt/mem_cache/page_interleave.py", releases=">=0.5.23"),
    admit_member("srt/mem_cache/kv_cache_configurator.py", releases=">=0.5.23"),
)

PATCH = Patch(
    number=700,
    title="[Spec] NEXTN: drive the checkpoint's own MTP head in the target's process",
    message="""\
## Motivation

`--speculative-algorithm NEXTN` is rewritten to EAGLE while arguments are resolved, and
nothing says so: the log, `/get_server_info` and the metrics all name EAGLE. The EAGLE
worker does load the MTP head that a checkpoint ships, but as if it were a foreign draft
model: it resolves a second model configuration, walks every shard of the checkpoint
again, and allocates a second `embed_tokens` and `lm_head` that are dropped after the KV
pools were sized. A tensor of the head that is missing is at most a warning.

## Modifications

- `SpeculativeAlgorithm.NEXTN` is a member of its own. `is_eagle()` answers True for it,
  so programs that ask `from_string(name).is_eagle()` keep working, and `is_nextn()` is
  new. Every comparison with EAGLE, by string or by member, lets NEXTN through.
- `NextnWorker` builds the head beside the loaded target: its own layers only, the
  target's tables by reference, before the KV pools are sized. Only the shards that hold
  `mtp.*` are opened, once, and every parameter is filled or named in an error.
- A model whose head the worker does not serve is given to the EAGLE worker with one
  warning that says why; a model without a head is refused before weights load.

## Accuracy Tests

On the CPU engine, in float32, with a small trained Qwen3.5 checkpoint, in the fork's
server tests: greedy tokens are those of transformers, alone, in a batch, after a cached
prefix and with an image; at temperature 1 the first tokens have the model's own
probabilities; the accept length on held-out prompts is above 2.7. No published
checkpoint was evaluated.

## Benchmark and Profiling

None on a GPU, and no speed is claimed. The fork's `benchmark/serving` compares EAGLE
and NEXTN on one machine.
""",
    edits=(*ALGORITHM, *RESOLUTION, *CONFIGURATION, *SITES),
    overlay=("srt/speculative/nextn",),
    tests=("unit/speculative/nextn",),
)
