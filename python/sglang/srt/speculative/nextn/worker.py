"""The NEXTN worker: drafts with the MTP head of the target's own checkpoint."""

from __future__ import annotations

import logging

from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2
from sglang.srt.speculative.nextn.chain_guards import (
    batch_takes_chain_round,
    server_guard,
)
from sglang.srt.speculative.nextn.chain_round import run_chain_round
from sglang.srt.speculative.nextn.draft_worker import NextnDraftWorker
from sglang.srt.utils.common import log_info_on_rank0

logger = logging.getLogger(__name__)


class NextnWorker(EAGLEWorkerV2):
    """Runs draft, verify and draft-extend for ``--speculative-algorithm NEXTN``."""

    draft_worker_class = NextnDraftWorker
    takes_chain_rounds = False
    head_has_experts = True

    def init_cuda_graphs(self) -> None:
        super().init_cuda_graphs()
        if not self._hosts_draft:
            return
        reason = server_guard(self)
        self.takes_chain_rounds = reason is None
        head = self.draft_worker.draft_runner.model
        self.head_has_experts = any(isinstance(m, FusedMoE) for m in head.modules())
        round_name = f"general, since {reason}" if reason else "chain"
        log_info_on_rank0(logger, f"NEXTN decode round: {round_name}.")

    def forward_batch_generation(
        self, batch, on_publish=None, grammar_barrier=None, pp_proxy_tensors=None
    ) -> GenerationBatchResult:
        is_prefill = batch.forward_mode.is_extend() or batch.is_extend_in_batch
        if self.takes_chain_rounds and not is_prefill:
            self.activate_step_by_batch(batch.seq_lens.shape[0])
            if batch_takes_chain_round(self, batch):
                return run_chain_round(self, batch, on_publish, grammar_barrier)
        return super().forward_batch_generation(
            batch, on_publish, grammar_barrier, pp_proxy_tensors
        )
