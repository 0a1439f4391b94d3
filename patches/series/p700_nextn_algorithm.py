"""NEXTN becomes an algorithm of its own, from the flag to the metrics."""

from patches.engine.edits import (
    AdmitMember,
    Insert,
    ReplaceExpression,
    ReplaceStatement,
)
from patches.engine.patch import Edit, Patch
from patches.engine.place import Find

SPEC_INFO = "srt/speculative/spec_info.py"
SPEC_REGISTRY = "srt/speculative/spec_registry.py"
SPEC_HOOK = "srt/arg_groups/speculative_hook.py"
ENUM = "SpeculativeAlgorithm"


def admit_string(file: str, sites: int = 1, scope: str = "") -> Edit:
    """Let the name NEXTN through wherever a file lets the name EAGLE through."""
    return AdmitMember(file=file, scope=scope, like="EAGLE", new="NEXTN", sites=sites)


def admit_member(file: str, sites: int = 1, scope: str = "") -> Edit:
    """Let the enum member NEXTN through wherever a file lets EAGLE through."""
    return AdmitMember(
        file=file, scope=scope, like=f"{ENUM}.EAGLE", new=f"{ENUM}.NEXTN", sites=sites
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
    ReplaceExpression(
        file=SPEC_HOOK,
        scope="_resolve_speculative_algorithm_alias",
        at=Find("attribute", "logger.info"),
        code="logger.warning",
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

# AdmitMember skips a collection that names NEXTN already; each count is of the places
# that knew EAGLE alone.
SITES = (
    admit_string("srt/lora/utils.py"),
    admit_string("srt/layers/attention/attention_registry.py"),
    admit_string("srt/speculative/adaptive_spec_params.py"),
    admit_string("srt/arg_groups/deepseek_v4_hook.py", sites=2),
    admit_string("srt/arg_groups/kv_shard_hook.py"),
    admit_string("srt/arg_groups/kv_cache_hook.py", sites=4),
    admit_string("srt/arg_groups/validation_hook.py", sites=2),
    admit_string(SPEC_HOOK, scope="_should_auto_enable_hip_rejection_sampling"),
    admit_string(SPEC_HOOK, scope="handle_speculative_decoding", sites=5),
    admit_string(SPEC_HOOK, scope="_handle_eagle_family"),
    admit_string("srt/arg_groups/model_overrides/gigachat35.py"),
    admit_string("srt/arg_groups/model_overrides/mimo_v2.py"),
    admit_string("srt/arg_groups/overrides.py", sites=2),
    admit_string("srt/arg_groups/lora_hook.py"),
    admit_member("srt/managers/scheduler_components/metrics_reporter.py"),
    admit_member("srt/mem_cache/page_interleave.py"),
    admit_member("srt/mem_cache/kv_cache_configurator.py"),
)

PATCH = Patch(
    number=700,
    title="[Spec] Make NEXTN an algorithm instead of a silent alias of EAGLE",
    message="""\
## Motivation

`--speculative-algorithm NEXTN` is rewritten to EAGLE while arguments are resolved, and
nothing says so: the log, `/get_server_info` and the metrics all name EAGLE.

## Modifications

- `SpeculativeAlgorithm.NEXTN` is a member of its own. `is_eagle()` answers True for it,
  so programs that ask `from_string(name).is_eagle()` keep working, and `is_nextn()` is
  new.
- Every comparison with EAGLE, by string or by enum member, lets NEXTN through.
- A model whose head the NEXTN worker does not serve is given to the EAGLE worker with
  one warning that says why; a model without a head is refused before weights load.
- A promotion to FROZEN_KV_MTP is logged as a warning.
""",
    edits=(*ALGORITHM, *RESOLUTION, *SITES),
    overlay=("srt/speculative/nextn/algorithm.py", "srt/speculative/nextn/worker.py"),
)
