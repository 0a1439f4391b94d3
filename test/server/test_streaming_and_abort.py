"""Streams add up to the whole answer, and an abandoned request frees its place."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from harness.client import Client

PROMPT = "import os\n\ndef walk("
GREEDY = {"temperature": 0, "max_new_tokens": 48, "ignore_eos": True}
ENDLESS = {"temperature": 0, "max_new_tokens": 1800, "ignore_eos": True}


def test_streamed_text_is_the_whole_text(nextn: Client, plain: Client) -> None:
    whole = plain.generate(PROMPT, GREEDY)
    chunks = list(nextn.stream(PROMPT, GREEDY))
    texts = [chunk["text"] for chunk in chunks]
    assert len(chunks) > 3
    assert texts[-1] == whole.text
    assert all(later.startswith(text) for text, later in pairwise(texts))
    assert tuple(chunks[-1]["output_ids"]) == whole.token_ids


def test_leaving_a_stream_ends_its_request(nextn: Client) -> None:
    before = nextn.generate(PROMPT, GREEDY)
    stream = nextn.stream(PROMPT, ENDLESS)
    next(stream)
    assert eventually(lambda: running(nextn) == 1)
    stream.close()
    assert becomes_idle(nextn)
    assert nextn.generate(PROMPT, GREEDY).token_ids == before.token_ids


@pytest.mark.parametrize("everything", [False, True])
def test_abort_ends_a_request_with_what_it_has(
    nextn: Client, plain: Client, everything: bool
) -> None:
    whole = plain.generate(PROMPT, {**ENDLESS, "max_new_tokens": 100})
    with ThreadPoolExecutor() as threads:
        job = threads.submit(nextn.generate, PROMPT, ENDLESS, rid="to-abort")
        assert eventually(lambda: running(nextn) == 1)
        named = {"abort_all": True} if everything else {"rid": "to-abort"}
        nextn.post("/abort_request", named).raise_for_status()
        completion = job.result()
    assert completion.meta["finish_reason"]["type"] == "abort"
    assert len(completion.token_ids) < ENDLESS["max_new_tokens"]
    common = min(len(completion.token_ids), len(whole.token_ids))
    assert completion.token_ids[:common] == whole.token_ids[:common]
    assert becomes_idle(nextn)


def test_aborting_one_request_leaves_the_others(nextn: Client, plain: Client) -> None:
    prompts = [f"class Part{i}:\n" for i in range(6)]
    expected = plain.generate_together(prompts, GREEDY)
    with ThreadPoolExecutor() as threads:
        job = threads.submit(nextn.generate, PROMPT, ENDLESS, rid="to-abort")
        others = threads.submit(nextn.generate_together, prompts, GREEDY)
        assert eventually(lambda: running(nextn) > 1)
        nextn.post("/abort_request", {"rid": "to-abort"}).raise_for_status()
        assert job.result().meta["finish_reason"]["type"] == "abort"
        answers = others.result()
    for ours, theirs in zip(answers, expected, strict=True):
        assert ours.token_ids == theirs.token_ids


def running(client: Client) -> int:
    """The number of requests that the scheduler holds."""
    loads = client.http.get("/v1/loads").raise_for_status().json()["loads"]
    return sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads)


def becomes_idle(client: Client) -> bool:
    return eventually(lambda: running(client) == 0)


def eventually(condition, seconds: float = 20.0) -> bool:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False
