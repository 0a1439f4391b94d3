"""The NEXTN worker: drafts with the MTP head of the target's own checkpoint."""

from __future__ import annotations

from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2
from sglang.srt.speculative.nextn.draft_worker import NextnDraftWorker


class NextnWorker(EAGLEWorkerV2):
    """Runs draft, verify and draft-extend for ``--speculative-algorithm NEXTN``."""

    draft_worker_class = NextnDraftWorker
