"""The two places in upstream's EAGLE worker that a worker with its own draft fills."""

from patches.engine.edits import AddArgument, Insert, ReplaceExpression
from patches.engine.patch import Edit, Patch
from patches.engine.place import Find

WORKER = "srt/speculative/eagle_worker_v2.py"
LOADER = "srt/model_loader/loader.py"


def build_scope(releases: str, body: str) -> Edit:
    """Open what ``_initialize_model`` does around a model to who builds one by hand."""
    return Insert(
        file=LOADER,
        releases=releases,
        after="_initialize_model",
        code=f'''
        @contextmanager
        def build_scope(model_class, hf_config, quant_config):
            """Decide on fused shared experts for a model that is built inside."""
            {body}
        ''',
    )


# What the NEXTN worker calls and 0.5.23 brought.
SEAMS_THAT_0_5_23_HAS = (
    Insert(
        file=WORKER,
        releases="<0.5.23",
        scope="EagleDraftWorker",
        before="__init__",
        code="""
        @property
        def parallel_layout(self):
            return self.draft_owns_attention
        """,
    ),
    Insert(
        file="srt/model_executor/runner/base_runner.py",
        releases="<0.5.23",
        scope="BaseRunner",
        before="warmup",
        code="""
        def model_context(self):
            from contextlib import nullcontext

            return nullcontext()
        """,
    ),
    AddArgument(
        file="srt/model_executor/forward_context.py",
        releases="<0.5.23",
        at="forward_context",
        code="forward_batch=None",
    ),
)

PATCH = Patch(
    number=690,
    title="[Spec] Let a worker bring its own draft worker to the EAGLE worker",
    message="""\
## Motivation

`EAGLEWorkerV2` and `EagleDraftWorker` name the classes that they build, so a worker
that drafts with something else has to copy their constructors.

## Modifications

- `EAGLEWorkerV2.draft_worker_class` and `EagleDraftWorker.build_tp_worker` are the two
  seams of the worker. EAGLE itself behaves as before.
- `loader.build_scope` is what `_initialize_model` does around the model that it builds,
  for a draft model that is built from the target's.
""",
    edits=(
        ReplaceExpression(
            file=WORKER,
            scope="EagleDraftWorker.__init__",
            at=Find("name", "TpModelWorker", nth=1, of=2),
            code="self.build_tp_worker",
        ),
        Insert(
            file=WORKER,
            scope="EagleDraftWorker",
            after="__init__",
            code='''
            def build_tp_worker(self, **kwargs) -> TpModelWorker:
                """Build the worker that owns the draft's model runner."""
                return TpModelWorker(**kwargs)
            ''',
        ),
        ReplaceExpression(
            file=WORKER,
            scope="EAGLEWorkerV2.__init__",
            at=Find("name", "EagleDraftWorker"),
            code="self.draft_worker_class",
        ),
        Insert(
            file=WORKER,
            scope="EAGLEWorkerV2",
            before="__init__",
            code="draft_worker_class: type[EagleDraftWorker] = EagleDraftWorker",
        ),
        build_scope(
            ">=0.5.23",
            """shared_experts = resolve_shared_experts_config(
                model_class, hf_config, quant_config
            )
            with get_model().override(shared_experts=shared_experts):
                yield shared_experts""",
        ),
        build_scope(
            "<0.5.23",
            """install_shared_experts_fusion_decision(
                model_class, hf_config, quant_config
            )
            yield None""",
        ),
        *SEAMS_THAT_0_5_23_HAS,
    ),
    tests=("unit/speculative/test_eagle_worker_seams.py",),
)
