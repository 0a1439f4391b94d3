"""Which states of linear-attention layers a chain round keeps."""

from __future__ import annotations

from sglang.srt.runtime_context import get_exec, mamba_track_grid
from sglang.srt.speculative.nextn.round_state import RoundInputs, Verified
from sglang.srt.speculative.spec_utils import (
    commit_mamba_states_after_verify,
    prepare_mamba_track_for_verify,
)


def prepare_state_tracking(batch, inputs: RoundInputs) -> None:
    """Name the slots for states at the track interval, if a request may reach one.

    Most rounds reach none: what is not named is not copied after the verify.
    """
    if _may_reach_track_point(batch, inputs.width):
        prepare_mamba_track_for_verify(batch)
    else:
        batch.mamba_track_indices = batch.mamba_track_mask = None
        batch.mamba_track_seqlens = batch.mamba_track_seqlens_cpu = None
        batch.mamba_prefill_track_mask_cpu = None


def commit_states(target_worker, batch, inputs: RoundInputs, verified: Verified):
    """Keep the state after each request's last accepted token."""
    untracked = batch.mamba_track_indices is None
    commit_mamba_states_after_verify(
        target_worker,
        batch,
        verified.accept_lens,
        verified.accept_index,
        inputs.width,
        prepared_step_indices=(verified.accept_lens - 1, None) if untracked else None,
    )


def _may_reach_track_point(batch, width: int) -> bool:
    """Whether accepting all of a window takes a request past a multiple of the grid."""
    if not get_exec().mamba.enable_mamba_extra_buffer:
        return False
    if batch.seq_lens_cpu is None:
        return True
    grid = mamba_track_grid(batch.tree_cache.page_size)
    return any(length % grid + width >= grid for length in batch.seq_lens_cpu.tolist())
