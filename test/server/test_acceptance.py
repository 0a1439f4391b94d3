"""The trained MTP head predicts text that it has not seen, and is counted honestly."""

from __future__ import annotations

from harness.client import Client
from harness.prompts import held_out_prompts

# Short, so that repetition loops of the model do not flatter the head.
NEW_TOKENS = 24
STEPS = 3
SAMPLING = {"temperature": 0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}


def test_accept_length_on_held_out_prompts_is_above_2_7(nextn: Client) -> None:
    prompts = held_out_prompts()
    assert len(prompts) >= 60
    metas = [answer.meta for answer in nextn.generate_batch(prompts, SAMPLING)]
    verifies = sum(meta["spec_verify_ct"] for meta in metas)
    accepted = sum(meta["spec_num_correct_drafts"] for meta in metas)
    assert 1 + accepted / verifies > 2.7


def test_each_answer_counts_its_own_drafts(nextn: Client) -> None:
    for completion in nextn.generate_together(held_out_prompts()[:8], SAMPLING):
        meta = completion.meta
        histogram = meta["spec_correct_drafts_histogram"]
        verifies = meta["spec_verify_ct"]
        accepted = sum(drafts * count for drafts, count in enumerate(histogram))
        assert sum(histogram) == verifies
        assert accepted == meta["spec_num_correct_drafts"]
        assert meta["spec_num_proposed_drafts"] == verifies * STEPS
        # The first token comes from the prefill; the last verify may overshoot.
        assert NEW_TOKENS - 1 <= accepted + verifies <= NEW_TOKENS - 1 + STEPS


def test_server_info_says_nextn(nextn: Client, plain: Client) -> None:
    assert nextn.server_info()["speculative_algorithm"] == "NEXTN"
    assert nextn.http.get("/get_server_info").json()["speculative_algorithm"] == "NEXTN"
    assert nextn.server_info()["speculative_num_steps"] == STEPS
    assert plain.server_info()["speculative_algorithm"] is None
