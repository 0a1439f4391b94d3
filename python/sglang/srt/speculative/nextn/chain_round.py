"""One decode round of a chain: draft, verify, draft-extend.

The round gathers positions and slots once, calls the models directly and reuses the
verify batch for draft-extend. ``chain_guards`` says which batches take it.
"""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING

import torch

from sglang.srt.layers.logprob_processor import compute_spec_logprobs
from sglang.srt.layers.moe.utils import (
    speculative_moe_a2a_backend_context,
    speculative_moe_backend_context,
)
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import (
    CaptureHiddenMode,
    ForwardBatch,
    ForwardMode,
)
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
from sglang.srt.speculative.eagle_info import (
    EagleDraftExtendInput,
    EagleDraftInput,
    EagleVerifyInput,
)
from sglang.srt.speculative.nextn.acceptance import (
    accept_greedily,
    accept_with_sampler,
    link_chain,
    needs_sampler,
    start_grammar,
)
from sglang.srt.speculative.nextn.round_state import RoundInputs, Verified
from sglang.srt.speculative.nextn.state_commit import (
    commit_states,
    prepare_state_tracking,
)
from sglang.srt.speculative.spec_utils import draft_tp_context, spec_stage_span

if TYPE_CHECKING:
    from sglang.srt.speculative.nextn.worker import NextnWorker


def run_chain_round(
    worker: NextnWorker, batch, on_publish=None, grammar_barrier=None
) -> GenerationBatchResult:
    """Run one round; ``batch`` is changed as upstream's EAGLE round changes it."""
    target = worker.target_worker.model_runner
    seed: EagleDraftInput = batch.spec_info
    inputs = RoundInputs.gather(
        batch, target.req_to_token_pool.req_to_token, worker.speculative_num_steps
    )
    with _drafting(worker, "draft"):
        tokens = draft(worker, batch, inputs, seed)
    verified = verify(worker, batch, inputs, tokens, grammar_barrier)
    new_seq_lens = inputs.seq_lens + verified.accept_lens
    if on_publish is not None:
        on_publish(new_seq_lens)
    with _drafting(worker, "draft_extend"):
        next_draft_input = draft_extend(worker, inputs, verified)
    return GenerationBatchResult(
        logits_output=verified.logits_output,
        next_token_ids=verified.predicted,
        can_run_cuda_graph=False,
        speculative_num_draft_tokens=inputs.width,
        next_draft_input=next_draft_input,
        accept_lens=verified.accept_lens,
        accept_index=verified.accept_index,
        new_seq_lens=new_seq_lens,
        extra_keep_alive_refs=[verified.forward_batch],
    )


def draft(
    worker: NextnWorker, batch, inputs: RoundInputs, seed: EagleDraftInput
) -> torch.Tensor:
    """Draft ``num_steps`` tokens: the seed's, then one head forward for each more.

    Returns [batch_size, width] int64: the left-over token, then the drafts.
    """
    drafted = [seed.bonus_tokens.long()[:, None], seed.topk_index]
    if inputs.num_steps == 1:
        return torch.cat(drafted, 1)
    runner = worker.draft_worker.draft_runner
    backend = worker.draft_worker.draft_attn_backend
    seed.num_tokens_per_req = seed.num_tokens_for_logprob_per_req = 1
    seed.positions = inputs.seq_lens
    batch.out_cache_loc = inputs.cache_locs[:, : inputs.num_steps].reshape(-1)
    forward_batch = ForwardBatch.init_new(
        batch,
        runner,
        capture_hidden_mode=CaptureHiddenMode.LAST,
        return_hidden_states_before_norm=False,
        spec_mrope_positions=inputs.mrope_positions(inputs.seq_lens),
    )
    backend.init_forward_metadata(forward_batch)
    forward_batch.input_ids = seed.topk_index.flatten()
    runner._prepare_eager_forward_batch(forward_batch)
    positions, cache_locs = inputs.positions.t(), inputs.cache_locs.t().contiguous()
    with runner.eager_runner.model_context():
        for step in range(inputs.num_steps - 1):
            forward_batch.positions = positions[step]
            forward_batch.out_cache_loc = cache_locs[step]
            if inputs.is_text_only:
                forward_batch.mrope_positions = inputs.mrope_positions(positions[step])
            elif step > 0:
                forward_batch.mrope_positions.add_(1)
            output = _call_model(runner, forward_batch, backend.attn_backends[step])
            seed.hidden_states = output.hidden_states
            forward_batch.input_ids = output.next_token_logits.argmax(-1)
            drafted.append(forward_batch.input_ids[:, None])
    return torch.cat(drafted, 1)


def verify(
    worker: NextnWorker,
    batch,
    inputs: RoundInputs,
    tokens: torch.Tensor,
    grammar_barrier,
) -> Verified:
    """Run the target over the window and commit what it accepts."""
    runner = worker.target_worker.model_runner
    verify_input = _verify_input(batch, inputs, tokens)
    sampled = needs_sampler(batch)
    if sampled:
        link_chain(verify_input, inputs)
    batch.spec_info, batch.forward_mode = verify_input, ForwardMode.TARGET_VERIFY
    batch.input_ids = verify_input.draft_token
    batch.out_cache_loc = inputs.cache_locs.reshape(-1)
    prepare_state_tracking(batch, inputs)
    forward_batch = ForwardBatch.init_new(
        batch,
        runner,
        capture_hidden_mode=CaptureHiddenMode.FULL,
        return_hidden_states_before_norm=False,
        spec_mrope_positions=inputs.mrope_positions(verify_input.positions),
    )
    grammar = start_grammar(verify_input) if batch.has_grammar else None
    runner.attn_backend.init_forward_metadata(forward_batch)
    logits_output = _forward(runner, forward_batch, runner.attn_backend)
    if sampled:
        accepted = accept_with_sampler(
            verify_input, batch, logits_output, grammar, grammar_barrier
        )
    else:
        accepted = accept_greedily(inputs, tokens, logits_output.next_token_logits)
    verified = Verified(
        forward_batch=forward_batch,
        logits_output=logits_output,
        **vars(accepted),
    )
    commit_states(worker.target_worker, batch, inputs, verified)
    if batch.return_logprob:
        compute_spec_logprobs(
            batch,
            logits_output,
            verified.predicted,
            accept_index=verified.accept_index,
        )
    return verified


def draft_extend(
    worker: NextnWorker, inputs: RoundInputs, verified: Verified
) -> EagleDraftInput:
    """Give the head the window's true hidden states, and draft the next round's first.

    Rows, positions and slots are those of the verify batch, which is reused. Only the
    last accepted row of each request reaches ``lm_head``.
    """
    runner = worker.draft_worker.draft_runner
    last_rows = inputs.first_rows + verified.accept_lens.long() - 1
    extend_input = EagleDraftExtendInput(
        hidden_states=verified.logits_output.hidden_states,
        num_correct_drafts=verified.accept_lens - 1,
        num_accept_tokens=verified.accept_lens,
        num_tokens_per_req=inputs.width,
        num_tokens_for_logprob_per_req=inputs.width,
        select_index=last_rows,
    )
    forward_batch = copy.copy(verified.forward_batch)
    forward_batch.forward_mode = ForwardMode.DRAFT_EXTEND_V2
    forward_batch.capture_hidden_mode = CaptureHiddenMode.LAST
    forward_batch.input_ids = verified.predicted.long()
    forward_batch.spec_info = extend_input
    forward_batch.return_logprob = False
    forward_batch.seq_lens = inputs.seq_lens + inputs.width
    forward_batch.extend_prefix_lens = inputs.seq_lens
    forward_batch.extend_seq_lens = torch.full_like(verified.accept_lens, inputs.width)
    forward_batch.extend_start_loc = inputs.first_rows.int()
    forward_batch.extend_seq_lens_cpu = [inputs.width] * inputs.batch_size
    forward_batch.extend_num_tokens = inputs.batch_size * inputs.width
    runner.attn_backend.init_forward_metadata(forward_batch)
    output = _forward(runner, forward_batch, runner.attn_backend)
    topk_index = output.next_token_logits.argmax(-1, keepdim=True)
    return EagleDraftInput(
        bonus_tokens=verified.predicted[last_rows],
        topk_index=topk_index,
        topk_p=torch.ones_like(topk_index, dtype=torch.float32),
        hidden_states=output.hidden_states,
    )


def _verify_input(batch, inputs: RoundInputs, tokens: torch.Tensor) -> EagleVerifyInput:
    """A chain's verify input: causal, so it has no mask, and links only if sampled."""
    seq_lens_cpu = batch.seq_lens_cpu
    return EagleVerifyInput(
        draft_token=tokens.flatten(),
        custom_mask=None,
        positions=inputs.positions.reshape(-1),
        retrieve_index=None,
        retrieve_next_token=None,
        retrieve_next_sibling=None,
        retrieve_cum_len=None,
        spec_steps=inputs.num_steps,
        topk=1,
        draft_token_num=inputs.width,
        capture_hidden_mode=None,
        seq_lens_sum=None if seq_lens_cpu is None else int(seq_lens_cpu.sum()),
        seq_lens_cpu=seq_lens_cpu,
    )


def _forward(runner, forward_batch: ForwardBatch, attn_backend):
    """Prepare a batch as the runner's own shell does, and call the model once."""
    runner._prepare_eager_forward_batch(forward_batch)
    with runner.eager_runner.model_context():
        return _call_model(runner, forward_batch, attn_backend)


def _call_model(runner, forward_batch: ForwardBatch, attn_backend):
    """Call the model of a batch that is prepared, in its layout's context."""
    runner.forward_pass_id += 1
    context = ForwardContext(attn_backend=attn_backend)
    with forward_context(context, forward_batch=forward_batch):
        return runner.model.forward(
            forward_batch.input_ids, forward_batch.positions, forward_batch
        )


@contextlib.contextmanager
def _drafting(worker: NextnWorker, stage: str):
    with draft_tp_context(worker.draft_worker.parallel_layout), spec_stage_span(stage):
        if not worker.head_has_experts:
            yield
            return
        with speculative_moe_backend_context(), speculative_moe_a2a_backend_context():
            yield
