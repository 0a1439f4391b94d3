"""The places in upstream's EAGLE worker that the native NEXTN worker fills itself."""

from patches.engine.edits import AddImport, Insert, ReplaceExpression
from patches.engine.patch import Patch
from patches.engine.place import Find

WORKER = "srt/speculative/eagle_worker_v2.py"
AUX_STATE = "srt/model_executor/model_runner_components/spec_aux_hidden_state.py"

PATCH = Patch(
    number=710,
    title="[Spec] Drive the checkpoint's own MTP head in the target's process",
    message="""\
## Motivation

For a checkpoint that ships an MTP head, the EAGLE worker resolves a second model
configuration, walks every shard of the checkpoint again, and allocates a second
`embed_tokens` and `lm_head` that are dropped after the KV pools were sized.

## Modifications

- `NextnWorker` builds the head beside the loaded target: its own layers only, the
  target's tables by reference, before the KV pools are sized.
- `EagleDraftWorker.build_tp_worker` and `EAGLEWorkerV2.draft_worker_class` are the two
  seams that a worker with another draft needs; EAGLE is unchanged.
- The head's configuration is derived from the target's.
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
            before="draft_parallel_layout",
            code="draft_worker_class: type[EagleDraftWorker] = EagleDraftWorker",
        ),
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
    ),
    overlay=("srt/speculative/nextn",),
)
