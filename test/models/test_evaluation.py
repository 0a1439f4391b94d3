"""The simulated rounds are those of serving: drafts one token at a time, one by one."""

import json
from pathlib import Path

import pytest
import torch
from tiny_qwen.decoding import continue_greedily
from tiny_qwen.evaluation import (
    encode,
    ends_in_loop,
    load_tokenizer,
    simulate_prompts,
)
from tiny_qwen.loading import load_model
from tiny_qwen.losses import repeated_tokens

PROMPTS = json.loads(
    (Path(__file__).parent / "held_out_prompts.json").read_text("utf-8")
)
STEPS = 3


def draft_round(model, verified):
    """STEPS drafts after the verified ids [n], each reading what was drafted before."""
    ids = verified[None]
    hidden, _ = model.hidden_states(ids)
    rows = ids.shape[1] - 1
    for _ in range(STEPS):
        drafted = ids.shape[1] - verified.shape[0]
        filled = torch.cat([ids, ids.new_zeros(1, STEPS - drafted)], 1)
        outputs = model.draft_hidden_states(filled, hidden[:, :rows], drafted + 1)
        best = model.logits(outputs[drafted][:, -1:]).argmax(-1)
        ids = torch.cat([ids, best], 1)
    return ids[0, -STEPS:]


@pytest.mark.parametrize("prompt", PROMPTS[:6])
def test_simulation_equals_rounds_that_read_their_own_drafts(trained, prompt):
    model = load_model(trained)
    ids = encode(load_tokenizer(trained), prompt)
    (target,) = continue_greedily(model, [ids], 24 + STEPS + 1)

    verified, verifies, accepted = len(ids) + 1, 0, [0] * STEPS
    while verified - len(ids) < 24:
        drafts = draft_round(model, target[:verified])
        wanted = target[verified : verified + STEPS]
        length = int((drafts == wanted).long().cumprod(0).sum())
        for step in range(length):
            accepted[step] += 1
        verified += length + 1
        verifies += 1

    (result,) = simulate_prompts(model, [ids], new_tokens=24, steps=STEPS)
    assert (result.verifies, result.accepted) == (verifies, accepted)


def test_a_loop_is_a_short_period_up_to_the_end():
    assert ends_in_loop([*range(50), *[1, 2, 3] * 11])
    assert not ends_in_loop([*[1, 2, 3] * 11, 7])
    assert not ends_in_loop(list(range(64)))


def test_repeated_tokens_end_a_run_that_occurred_before():
    ids = torch.tensor([[5, 6, 7, 8, 5, 6, 7, 9]])
    expected = [[False] * 6 + [True, False]]
    assert repeated_tokens(ids, order=3).tolist() == expected
