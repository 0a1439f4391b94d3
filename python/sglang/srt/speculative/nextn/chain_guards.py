"""Which servers and batches take the chain round, and which the general one.

The general round is upstream's: it knows everything. The chain round leaves out what a
server does not use, so each thing that it leaves out has a guard here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sglang.srt.eplb.expert_distribution import (
    get_global_expert_distribution_recorder,
)
from sglang.srt.runtime_context import get_exec, get_parallel, get_spec
from sglang.srt.speculative.spec_utils import SIMULATE_ACC_LEN
from sglang.srt.state_capturer.indexer_topk import get_global_indexer_capturer
from sglang.srt.state_capturer.routed_experts import get_global_experts_capturer

if TYPE_CHECKING:
    from sglang.srt.speculative.nextn.worker import NextnWorker

# Reason for the general round, and whether a server gives it.
SERVER_GUARDS: dict[str, Callable[[NextnWorker], object]] = {
    "a token tree is drafted (topk > 1)": lambda w: w.topk != 1,
    "the device replays captured graphs": lambda w: w.device != "cpu",
    "a compiled graph runs the target": lambda w: _has_graph(w),
    "pipeline stages relay the chain": lambda w: get_parallel().pp_size > 1,
    "context parallelism splits the batch": lambda w: get_parallel().attn_cp_size > 1,
    "DP attention pads idle ranks": lambda w: get_parallel().attn_dp_size > 1,
    "a token map reduces the draft's vocabulary": lambda w: (
        w.draft_worker.hot_token_id is not None
    ),
    "rejection sampling needs the draft's distribution": lambda w: (
        get_spec().speculative_use_rejection_sampling
    ),
    "the accept length is simulated": lambda w: SIMULATE_ACC_LEN > 0,
    "the KV canary watches every forward": lambda w: any(
        runner.canary_manager is not None for runner in _runners(w)
    ),
    "outputs are watermarked": lambda w: (
        w.target_worker.model_runner.watermark_state is not None
    ),
    "experts are rebalanced": lambda w: (
        w.target_worker.model_runner.eplb_manager is not None
        or get_exec().moe.elastic_ep_backend is not None
    ),
    "routed experts or indexer choices are returned": lambda w: (
        get_global_experts_capturer() is not None
        or get_global_indexer_capturer() is not None
    ),
    "msprobe records every forward": lambda w: any(
        runner.msprobe_debugger is not None for runner in _runners(w)
    ),
}


def server_guard(worker: NextnWorker) -> str | None:
    """Return why this server never takes the chain round; None if it may."""
    for reason, applies in SERVER_GUARDS.items():
        if applies(worker):
            return reason
    return None


def batch_takes_chain_round(worker: NextnWorker, batch) -> bool:
    """Whether a decode batch of a server without a guard takes the chain round."""
    return (
        worker.speculative_num_steps > 0
        and not batch.forward_mode.is_idle()
        and batch.spec_info is not None
        and batch.spec_info.is_draft_input()
        and batch.global_num_tokens is None
        and batch.beam_tail is None
        and batch.hisparse_coordinator is None
        and not get_global_expert_distribution_recorder().recording
    )


def _runners(worker: NextnWorker) -> tuple:
    return worker.target_worker.model_runner, worker.draft_worker.draft_runner


def _has_graph(worker: NextnWorker) -> bool:
    target = worker.target_worker.model_runner
    return target.decode_cuda_graph_runner not in (None, target.eager_runner)
