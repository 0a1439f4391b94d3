"""Penalties of a verify step against the same penalizers fed one token at a time."""

import unittest
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import List, Set

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.sampling import penaltylib
from sglang.srt.sampling.penaltylib.draft_paths import (
    DraftPathPenalties,
    cumulate_committed_tokens,
    draft_paths,
)

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

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
CHAIN_PATHS = [[], [1], [1, 2], [1, 2, 3]]
TREE_PATHS = [[], [1], [1, 2], [3]]
TOKENIZER = SimpleNamespace(additional_stop_token_ids=set(), eos_token_id=None)


@dataclass
class Request:
    """The part of a request that penalizers read."""

    sampling_params: SimpleNamespace
    output_ids: List[int]
    num_penalized_tokens: int = 0
    eos_token_ids: Set[int] = field(default_factory=set)
    tokenizer: SimpleNamespace = field(default_factory=lambda: TOKENIZER)


class SimpleBatch(SimpleNamespace):
    """A namespace that can be referred to weakly, as a batch is."""


def batch_of(outputs):
    requests = [
        Request(SimpleNamespace(**{**PENALTIES, **asked}), [*output])
        for asked, output in zip(REQUESTS, outputs)
    ]
    batch = SimpleBatch(reqs=requests, device="cpu")
    orchestrator = penaltylib.BatchedPenalizerOrchestrator(
        vocab_size=VOCABULARY,
        batch=batch,
        penalizers={
            penaltylib.BatchedFrequencyPenalizer,
            penaltylib.BatchedMinNewTokensPenalizer,
            penaltylib.BatchedPresencePenalizer,
            penaltylib.BatchedRepetitionPenalizer,
        },
    )
    batch.sampling_info = SimpleNamespace(penalizer_orchestrator=orchestrator)
    return batch


def penalised_one_at_a_time(logits, outputs):
    """What the penalizers do without speculation, one request at a time."""
    rows = []
    for request, output in enumerate(outputs):
        batch = batch_of([[] for _ in outputs])
        orchestrator = batch.sampling_info.penalizer_orchestrator
        for token in output:
            orchestrator.cumulate_output_tokens(torch.full((len(outputs),), token))
        additive = torch.zeros(len(outputs), VOCABULARY)
        orchestrator.accumulate_additive_penalties(additive)
        row = logits[request] + additive[request]
        scaling = orchestrator.accumulate_scaling_penalties()[request]
        rows.append(torch.where(row < 0, row * scaling, row / scaling))
    return torch.stack(rows)


def additive_of(outputs):
    """The additive penalties of the definition, token by token."""
    expected = torch.zeros(len(outputs), VOCABULARY)
    for request, output in enumerate(outputs):
        asked = {**PENALTIES, **REQUESTS[request]}
        for token in set(output):
            expected[request, token] -= asked["frequency_penalty"] * output.count(token)
            expected[request, token] -= asked["presence_penalty"]
        if len(output) < asked["min_new_tokens"]:
            expected[request, STOP_TOKEN] = -torch.inf
    return expected


class TestDraftPathPenalties(CustomTestCase):
    def test_each_row_of_a_chain_is_penalised_for_what_stands_before_it(self):
        self.check_rows(CHAIN, CHAIN_PATHS)

    def test_each_row_of_a_tree_is_penalised_for_what_stands_before_it(self):
        self.check_rows(TREE, TREE_PATHS)

    def check_rows(self, links, paths):
        batch = batch_of(OUTPUTS)
        cumulate_committed_tokens(batch)
        torch.manual_seed(0)
        logits = torch.randn(DRAFTS.numel(), VOCABULARY)
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
        DraftPathPenalties.of(orchestrator).apply(found, verify_input)
        shape = (*DRAFTS.shape, VOCABULARY)
        for row, path in enumerate(paths):
            before = [
                [*output, *DRAFTS[request, path].tolist()]
                for request, output in enumerate(OUTPUTS)
            ]
            expected = penalised_one_at_a_time(logits.view(shape)[:, row], before)
            torch.testing.assert_close(found.view(shape)[:, row], expected)

    def test_every_committed_token_counts_once(self):
        batch = batch_of([[], [], [], []])
        for request, output in zip(batch.reqs, OUTPUTS):
            request.output_ids += output[:1]
        cumulate_committed_tokens(batch)
        for request, output in zip(batch.reqs, OUTPUTS):
            request.output_ids += output[1:]
        cumulate_committed_tokens(batch)
        cumulate_committed_tokens(batch)
        additive = torch.zeros(len(REQUESTS), VOCABULARY)
        orchestrator = batch.sampling_info.penalizer_orchestrator
        orchestrator.accumulate_additive_penalties(additive)
        torch.testing.assert_close(additive, additive_of(OUTPUTS))
        counted = [request.num_penalized_tokens for request in batch.reqs]
        self.assertEqual(counted, [4, 1, 0, 3])

    def test_paths_of_a_tree(self):
        next_token, next_sibling = (torch.tensor([links]) for links in TREE)
        paths = draft_paths(next_token, next_sibling)[0]
        self.assertEqual([row.nonzero()[:, 0].tolist() for row in paths], TREE_PATHS)


if __name__ == "__main__":
    unittest.main()
