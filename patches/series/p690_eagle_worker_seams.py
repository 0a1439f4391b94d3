"""The two places in upstream's EAGLE worker that a worker with its own draft fills."""

from patches.engine.edits import Insert, ReplaceExpression
from patches.engine.patch import Patch
from patches.engine.place import Find

WORKER = "srt/speculative/eagle_worker_v2.py"

PATCH = Patch(
    number=690,
    title="[Spec] Let a worker bring its own draft worker to the EAGLE worker",
    message="""\
## Motivation

`EAGLEWorkerV2` and `EagleDraftWorker` name the classes that they build, so a worker
that drafts with something else has to copy their constructors.

## Modifications

- `EAGLEWorkerV2.draft_worker_class` and `EagleDraftWorker.build_tp_worker` are the two
  seams. EAGLE itself behaves as before.
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
    ),
    tests=("unit/speculative/test_eagle_worker_seams.py",),
)
