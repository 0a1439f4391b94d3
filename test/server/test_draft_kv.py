"""The draft's KV is right after everything that moves, drops or refills it.

Stale or missing KV of the draft changes no token: it shows as fewer accepted drafts. So
a fresh server's answers are kept, and tokens and drafts by position must be those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import pytest
import torch
from tiny_qwen.checkpoint import Checkpoint
from torch.multiprocessing import set_sharing_strategy
from transformers import AutoTokenizer

from harness.client import Client, Completion
from harness.drafts import Drafts, Outcome
from harness.models import DENSE_MODEL
from harness.pool import ServerPool
from harness.prompts import held_out_prompts, prompts_of_many_lengths
from local_server import ServerConfig
from sglang.srt.utils import MultiprocessingSerializer

NEW_TOKENS = 48
TOGETHER = 10
RETRACTED_TOKENS = 80
# The state of linear attention is kept at multiples of this many tokens of an answer.
TRACK_INTERVAL = 256

pytestmark = pytest.mark.parametrize("server", ["dense_small_pool"], indirect=True)


@dataclass(frozen=True)
class Fresh:
    """Prompts and what a server answers that has never seen another request."""

    prompts: list[list[int]]
    outcomes: list[Outcome]


@pytest.fixture
def server(server_pool: ServerPool, configs: dict[str, ServerConfig]) -> Client:
    """The server of this file alone; what is compared with it starts beside it."""
    small, _ = server_pool.get(configs["dense_small_pool"], configs["dense_alias"])
    return small


@pytest.fixture(scope="module")
def fresh(
    server_pool: ServerPool, configs: dict[str, ServerConfig], dense_model: str
) -> Fresh:
    """The first answers of the server after its start."""
    small, _ = server_pool.get(configs["dense_small_pool"], configs["dense_alias"])
    tokenizer = AutoTokenizer.from_pretrained(dense_model)
    *prompts, longest = prompts_of_many_lengths(tokenizer)[-3:]
    prompts.append(longest[: TRACK_INTERVAL - NEW_TOKENS // 2])
    completions = [generate(small, prompt) for prompt in prompts]
    assert not any(completion.meta["cached_tokens"] for completion in completions)
    return Fresh(prompts, [Outcome.of(completion) for completion in completions])


def test_radix_hit(server: Client, fresh: Fresh) -> None:
    """On the KV of a prompt, and on the KV of what was drafted after it."""
    server.flush_cache()
    assert len(fresh.prompts[-1]) < TRACK_INTERVAL < len(fresh.prompts[-1]) + NEW_TOKENS
    for prompt, outcome in zip(fresh.prompts, fresh.outcomes, strict=True):
        generate(server, prompt)
        again = generate(server, prompt)
        assert again.meta["cached_tokens"] > len(prompt) // 2
        assert Outcome.of(again) == outcome

        longer = [*prompt, *outcome.token_ids]
        on_cache = generate(server, longer)
        in_answer = len(prompt) < TRACK_INTERVAL < len(longer)
        cached = on_cache.meta["cached_tokens"]
        assert cached > len(prompt) if in_answer else cached > len(prompt) // 2
        server.flush_cache()
        anew = generate(server, longer)
        assert not anew.meta["cached_tokens"]
        assert Outcome.of(on_cache) == Outcome.of(anew)


def test_flush(server: Client, fresh: Fresh) -> None:
    assert generate(server, fresh.prompts[-1]).meta["completion_tokens"]
    server.flush_cache()
    assert_fresh(server, fresh)


def test_retraction(server: Client, fresh: Fresh) -> None:
    """Each part of a retracted answer drafts like a request for that part alone.

    A request that ignores the end token would be let in with room for all its tokens.
    """
    num_retracted = 0
    for prompts in batched(held_out_prompts(), TOGETHER):
        server.flush_cache()
        with ThreadPoolExecutor(TOGETHER) as threads:
            streams = list(threads.map(lambda prompt: stream(server, prompt), prompts))
        server.flush_cache()
        for prompt, chunks in zip(prompts, streams, strict=True):
            starts = starts_of_parts(chunks)
            if starts is None:
                continue
            num_retracted += len(starts) > 1
            assert_parts_draft_alike(server, prompt, chunks, starts)
        if num_retracted:
            return
    raise AssertionError("no request was retracted where its stream shows it")


def test_weight_update_from_disk(server: Client, fresh: Fresh, tmp_path: Path) -> None:
    """Another head drafts other tokens; the old one again drafts as it did."""
    update_weights(server, without_fc(tmp_path))
    assert_drafts_worse(server, fresh)
    update_weights(server, DENSE_MODEL)
    assert_fresh(server, fresh)


def test_weight_update_from_tensors(server: Client, fresh: Fresh) -> None:
    """Tensors that another process shares reach the head as a file's do."""
    fc = Checkpoint.read(DENSE_MODEL).tensors["mtp.fc.weight"]
    update_from_tensors(server, {"mtp.fc.weight": torch.zeros_like(fc)})
    assert_drafts_worse(server, fresh)
    update_from_tensors(server, {"mtp.fc.weight": fc})
    assert_fresh(server, fresh)


def test_sleep_and_wake(server: Client, fresh: Fresh) -> None:
    """The cycle that a CPU can run: it drops the cache and restores static state.

    Nothing is unmapped: torch_memory_saver, which does that, needs a GPU.
    """
    generate(server, fresh.prompts[-1])
    for step in ("release", "resume"):
        server.post(f"/{step}_memory_occupation", {}).raise_for_status()
    assert_fresh(server, fresh)


def assert_fresh(server: Client, fresh: Fresh) -> None:
    """Nothing is cached, and every answer is that of the fresh server."""
    for prompt, outcome in zip(fresh.prompts, fresh.outcomes, strict=True):
        completion = generate(server, prompt)
        assert not completion.meta["cached_tokens"]
        assert Outcome.of(completion) == outcome


def assert_drafts_worse(server: Client, fresh: Fresh) -> None:
    """Tokens are those of the fresh server, and take more verify steps."""
    for prompt, outcome in zip(fresh.prompts, fresh.outcomes, strict=True):
        other = Outcome.of(generate(server, prompt))
        assert other.token_ids == outcome.token_ids
        assert other.drafts.num_verifies > outcome.drafts.num_verifies


def batched(prompts: Sequence[str], size: int) -> Iterator[list[str]]:
    """Yield the prompts in groups of ``size``; itertools has it from Python 3.12."""
    remaining = iter(prompts)
    while group := list(islice(remaining, size)):
        yield group


def greedy(num_tokens: int) -> dict[str, object]:
    return {"temperature": 0, "max_new_tokens": num_tokens}


def generate(server: Client, prompt: Sequence[int]) -> Completion:
    return server.generate(prompt, greedy(NEW_TOKENS))


def stream(server: Client, prompt: str) -> list[Completion]:
    chunks = server.stream(prompt, greedy(RETRACTED_TOKENS))
    return [Completion.of(chunk) for chunk in chunks]


def starts_of_parts(chunks: Sequence[Completion]) -> list[int] | None:
    """How many tokens there were at the start and at each retraction.

    A request that comes back starts with the one token of its prefill. Where a chunk
    has more, it has tokens from before the retraction too, and nobody can tell: None.
    """
    starts = [0]
    for before, after in pairwise(chunks):
        retractions = after.meta["num_retractions"] - before.meta["num_retractions"]
        start = before.meta["completion_tokens"]
        if not retractions:
            continue
        if retractions > 1 or after.meta["completion_tokens"] != start + 1:
            return None
        starts.append(start)
    return starts


def assert_parts_draft_alike(
    server: Client, prompt: str, chunks: Sequence[Completion], starts: list[int]
) -> None:
    """Each part is what a request for it alone gives, in tokens and in drafts."""
    tokenizer = AutoTokenizer.from_pretrained(DENSE_MODEL)
    given = tokenizer(prompt).input_ids
    answer = chunks[-1].token_ids
    parts = [
        server.generate([*given, *answer[:start]], greedy(end - start))
        for start, end in pairwise([*starts, len(answer)])
    ]
    assert tuple(token for part in parts for token in part.token_ids) == answer
    assert Drafts.of(chunks[-1]) == Drafts.sum(map(Drafts.of, parts))


def update_weights(server: Client, folder: Path) -> None:
    answer = server.post("/update_weights_from_disk", {"model_path": str(folder)})
    assert answer.json()["success"], answer.text


def update_from_tensors(server: Client, tensors: dict[str, torch.Tensor]) -> None:
    """Send names and handles of tensors in shared memory; each rank gets its list."""
    # Handles of the other strategy open for children of this process alone.
    set_sharing_strategy("file_system")
    serialized = MultiprocessingSerializer.serialize(list(tensors.items()), True)
    for path, body in (
        ("/begin_weight_update", {}),
        ("/update_weights_from_tensor", {"serialized_named_tensors": [serialized]}),
        ("/end_weight_update", {}),
    ):
        answer = server.post(path, body)
        assert answer.json()["success"], answer.text


def without_fc(folder: Path) -> Path:
    """The same model with a head that joins nothing: its drafts are guesses."""
    checkpoint = Checkpoint.read(DENSE_MODEL)
    checkpoint.tensors["mtp.fc.weight"].zero_()
    checkpoint.write(folder)
    return folder
