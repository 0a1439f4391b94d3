"""Penalties of a verify step against the same penalizers fed one token at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from sglang.srt.sampling import penaltylib
from sglang.srt.sampling.penaltylib.draft_paths import (
    DraftPathPenalties,
    cumulate_committed_tokens,
    draft_paths,
)

VOCABULARY = 11
STOP_TOKEN = 3
PENALTIES = {
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_new_tokens": 0,
    "stop_token_ids": {STOP_TOKEN},
}
REQUESTS = (
    {"frequency_penalty": 0.5, "presence_penalty": -0.2},
    {"repetition_penalty": 1.7, "min_new_tokens": 4},
    {},
    {"frequency_penalty": -0.3, "presence_penalty": 0.9, "repetition_penalty": 0.8},
)
OUTPUTS = ([1, 2, 2, 5], [7], [], [0, 0, 9])
DRAFTS = torch.tensor([[5, 2, 5, 1], [7, 7, 4, 3], [0, 0, 0, 0], [9, 0, 8, 8]])
CHAIN = ([1, 2, 3, -1], [-1, -1, -1, -1])
# Row 0 has children 1 and 3, row 1 has child 2.
TREE = ([1, 2, -1, -1], [-1, 3, -1, -1])
PATHS = {"chain": [[], [1], [1, 2], [1, 2, 3]], "tree": [[], [1], [1, 2], [3]]}


TOKENIZER = SimpleNamespace(additional_stop_token_ids=set(), eos_token_id=None)


@dataclass
class Request:
    """The part of a request that penalizers read."""

    sampling_params: SimpleNamespace
    output_ids: list[int]
    num_penalized_tokens: int = 0
    eos_token_ids: set[int] = field(default_factory=set)
    tokenizer: SimpleNamespace = field(default_factory=lambda: TOKENIZER)


def batch_of(outputs: list[list[int]]) -> SimpleNamespace:
    requests = [
        Request(SimpleNamespace(**{**PENALTIES, **asked}), [*output])
        for asked, output in zip(REQUESTS, outputs, strict=True)
    ]
    batch = SimpleBatch(reqs=requests, device="cpu")
    orchestrator = penaltylib.BatchedPenalizerOrchestrator(
        vocab_size=VOCABULARY,
        batch=batch,  # type: ignore[arg-type]
        penalizers={
            penaltylib.BatchedFrequencyPenalizer,
            penaltylib.BatchedMinNewTokensPenalizer,
            penaltylib.BatchedPresencePenalizer,
            penaltylib.BatchedRepetitionPenalizer,
        },
    )
    batch.sampling_info = SimpleNamespace(penalizer_orchestrator=orchestrator)
    return batch


class SimpleBatch(SimpleNamespace):
    """A namespace that can be referred to weakly, as a batch is."""


def penalised_one_at_a_time(logits: torch.Tensor, outputs: list[list[int]]):
    """What upstream's penalizers do without speculation, one request at a time."""
    rows = []
    for request, output in enumerate(outputs):
        alone = [[] for _ in outputs]
        batch = batch_of(alone)
        orchestrator = batch.sampling_info.penalizer_orchestrator
        for token in output:
            orchestrator.cumulate_output_tokens(torch.full((len(outputs),), token))
        additive = torch.zeros(len(outputs), VOCABULARY)
        orchestrator.accumulate_additive_penalties(additive)
        row = logits[request] + additive[request]
        scaling = orchestrator.accumulate_scaling_penalties()[request]
        rows.append(torch.where(row < 0, row * scaling, row / scaling))
    return torch.stack(rows)


@pytest.mark.parametrize(("shape", "links"), [("chain", CHAIN), ("tree", TREE)])
def test_each_row_is_penalised_for_what_stands_before_it(shape, links) -> None:
    batch = batch_of(OUTPUTS)
    cumulate_committed_tokens(batch)
    width = DRAFTS.shape[1]
    logits = torch.randn(
        len(REQUESTS) * width, VOCABULARY, generator=torch.Generator().manual_seed(0)
    )
    next_token, next_sibling = (
        torch.tensor(x).expand(len(REQUESTS), -1) for x in links
    )
    verify_input = SimpleNamespace(
        retrieve_next_token=next_token,
        retrieve_next_sibling=next_sibling,
        draft_token=DRAFTS.flatten(),
    )
    found = logits.clone()
    orchestrator = batch.sampling_info.penalizer_orchestrator
    DraftPathPenalties.of(orchestrator).apply(found, verify_input)  # type: ignore[arg-type]
    found = found.view(len(REQUESTS), width, VOCABULARY)
    for row, path in enumerate(PATHS[shape]):
        before = [
            [*output, *DRAFTS[request, path].tolist()]
            for request, output in enumerate(OUTPUTS)
        ]
        expected = penalised_one_at_a_time(
            logits.view(len(REQUESTS), width, VOCABULARY)[:, row], before
        )
        torch.testing.assert_close(found[:, row], expected)


def test_every_committed_token_counts_once() -> None:
    batch = batch_of([[], [], [], []])
    for request, output in zip(batch.reqs, OUTPUTS, strict=True):
        request.output_ids += output[:1]
    cumulate_committed_tokens(batch)
    for request, output in zip(batch.reqs, OUTPUTS, strict=True):
        request.output_ids += output[1:]
    cumulate_committed_tokens(batch)
    cumulate_committed_tokens(batch)
    logits = torch.zeros(len(REQUESTS), VOCABULARY)
    additive = logits.clone()
    orchestrator = batch.sampling_info.penalizer_orchestrator
    orchestrator.accumulate_additive_penalties(additive)
    torch.testing.assert_close(additive, additive_of(OUTPUTS))
    assert [request.num_penalized_tokens for request in batch.reqs] == [4, 1, 0, 3]


def additive_of(outputs: list[list[int]]) -> torch.Tensor:
    expected = torch.zeros(len(outputs), VOCABULARY)
    for request, output in enumerate(outputs):
        asked = {**PENALTIES, **REQUESTS[request]}
        for token in set(output):
            expected[request, token] -= asked["frequency_penalty"] * output.count(token)
            expected[request, token] -= asked["presence_penalty"]
        if len(output) < asked["min_new_tokens"]:
            expected[request, STOP_TOKEN] = -torch.inf
    return expected


def test_paths_of_a_tree() -> None:
    next_token, next_sibling = (torch.tensor([links]) for links in TREE)
    paths = draft_paths(next_token, next_sibling)[0]
    assert [row.nonzero()[:, 0].tolist() for row in paths] == PATHS["tree"]
