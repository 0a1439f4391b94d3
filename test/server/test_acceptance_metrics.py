"""What /metrics counts is what the answers say, by position, over 200 requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from prometheus_client.parser import text_string_to_metric_families

from harness.client import Client, Completion
from harness.drafts import Drafts
from harness.prompts import held_out_prompts

NUM_REQUESTS = 200
THREADS = 16
STEPS = 3

Counters = dict[tuple[str, str], float]


def test_counters_add_up_with_meta_info(nextn: Client) -> None:
    before = scrape(nextn)
    prompts = held_out_prompts()
    with ThreadPoolExecutor(THREADS) as threads:
        completions = list(
            threads.map(
                lambda number: complete(nextn, prompts[number % len(prompts)], number),
                range(NUM_REQUESTS),
            )
        )
    after = scrape(nextn)
    counted = {key: after[key] - before.get(key, 0.0) for key in after}
    drafts = Drafts.sum(map(Drafts.of, completions))
    assert drafts.num_verifies > NUM_REQUESTS
    assert drafts.proposed == drafts.num_verifies * STEPS
    assert len(drafts.accepted) == STEPS
    for position, accepted in enumerate(drafts.accepted):
        key = str(position)
        assert counted["sglang:spec_proposed_drafts_total", key] == drafts.num_verifies
        assert counted["sglang:spec_correct_drafts_total", key] == accepted
    assert counted["sglang:spec_verify_calls_total", ""] == drafts.num_verifies


def test_gauges_have_a_rate_for_each_position(nextn: Client) -> None:
    # A report is due every 40 decode steps.
    for prompt in held_out_prompts()[:3]:
        nextn.generate(prompt, sampling(80))
    gauges = scrape(nextn)
    for window in ("", "total_"):
        rates = [
            gauges[f"sglang:spec_{window}accept_rate_per_position", str(position)]
            for position in range(STEPS)
        ]
        assert all(0 < rate <= 1 for rate in rates)


def complete(client: Client, prompt: str, number: int) -> Completion:
    """From one new token, which needs no verify step, to twelve."""
    return client.generate(prompt, sampling(1 + number % 12))


def sampling(new_tokens: int) -> dict[str, object]:
    return {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True}


def scrape(client: Client) -> Counters:
    """The speculative metrics by name and position, summed over their other labels."""
    text = client.http.get("/metrics").raise_for_status().text
    found: Counters = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("sglang:spec_"):
                key = sample.name, sample.labels.get("position", "")
                found[key] = found.get(key, 0.0) + sample.value
    return found
