"""Decides how many drafts of a chain the target accepts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from sglang.srt.runtime_context import get_spec
from sglang.srt.speculative.eagle_info import EagleVerifyInput
from sglang.srt.speculative.eagle_utils import eagle_sample
from sglang.srt.speculative.nextn.round_state import RoundInputs
from sglang.srt.speculative.spec_utils import GrammarTree, build_grammar_vocab_mask


@dataclass(frozen=True)
class Acceptance:
    """See ``Verified`` for shapes."""

    predicted: torch.Tensor
    accept_lens: torch.Tensor
    accept_index: torch.Tensor


def needs_sampler(batch) -> bool:
    """Whether more than the target's arg-max decides: sampling, grammar, penalties."""
    info = batch.sampling_info
    return (
        not info.is_all_greedy
        or batch.has_grammar
        or info.logit_bias is not None
        or info.draft_path_penalties is not None
        or get_spec().speculative_use_rejection_sampling
    )


def accept_greedily(
    inputs: RoundInputs, tokens: torch.Tensor, logits: torch.Tensor
) -> Acceptance:
    """Compare two rows of tokens: what was drafted, what the target would say.

    The accepted length is one more than the leading run of agreement.

    Args:
        tokens: [batch_size, width] int64, the window.
        logits: [batch_size * width, vocabulary], the target's after each row.
    """
    predicted = logits.argmax(-1).view(inputs.batch_size, inputs.width)
    agrees = predicted[:, :-1] == tokens[:, 1:]
    accept_lens = agrees.cumprod(1).sum(1, dtype=torch.int32).add_(1)
    accept_index = inputs.rows.where(inputs.columns < accept_lens[:, None], -1)
    return Acceptance(predicted.flatten().int(), accept_lens, accept_index)


def link_chain(verify_input: EagleVerifyInput, inputs: RoundInputs) -> None:
    """Give a verify input the links of a chain, in the form of upstream's trees."""
    links = _chain_links(inputs.batch_size, inputs.width, inputs.positions.device)
    (
        verify_input.retrieve_index,
        verify_input.retrieve_next_token,
        verify_input.retrieve_next_sibling,
    ) = links


def start_grammar(verify_input: EagleVerifyInput) -> GrammarTree:
    """Copy the drafts to the host; call it before the target's forward is queued."""
    shape = verify_input.retrieve_next_token.shape
    return GrammarTree.from_device(
        verify_input.retrieve_next_token,
        verify_input.retrieve_next_sibling,
        verify_input.draft_token.view(shape),
    )


def accept_with_sampler(
    verify_input: EagleVerifyInput,
    batch,
    logits_output,
    grammar: GrammarTree | None,
    grammar_barrier,
) -> Acceptance:
    """Apply penalties, bias and grammar, then sample: upstream's own functions."""
    mask = None
    if grammar is not None:
        mask = build_grammar_vocab_mask(
            reqs=batch.reqs,
            tree=grammar,
            sampling_info=batch.sampling_info,
            device=verify_input.retrieve_next_token.device,
            barrier=grammar_barrier,
        )
    return Acceptance(*eagle_sample(verify_input, batch, logits_output, mask))


@lru_cache(maxsize=64)
def _chain_links(
    batch_size: int, width: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """[batch_size, width] int64 each: global row, next row in the request, sibling."""
    rows = torch.arange(batch_size * width, device=device).view(batch_size, width)
    next_token = torch.arange(1, width + 1, device=device).repeat(batch_size, 1)
    next_token[:, -1] = -1
    return rows, next_token, torch.full_like(rows, -1)
