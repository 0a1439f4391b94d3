"""Greedy tokens in float32 are transformers', however the server computes them."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image

from harness.client import Client
from harness.prompts import prompts_of_many_lengths
from harness.reference import Reference
from harness.servers import CHUNK, SERVERS

NEW_TOKENS = 64
GREEDY = {"temperature": 0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}
CONCURRENT = 8
IMAGE_PROMPT = "<|vision_start|><|image_pad|><|vision_end|>\ndef read("

each_server = pytest.mark.parametrize("server", SERVERS, indirect=True)


@pytest.fixture
def prompts(reference: Reference) -> list[list[int]]:
    prompts = prompts_of_many_lengths(reference.tokenizer)
    assert len(prompts) > CONCURRENT
    assert max(map(len, prompts)) > CHUNK, "no prompt is split"
    return prompts


@each_server
def test_alone(server: Client, reference: Reference, prompts: list[list[int]]) -> None:
    for prompt in prompts:
        completion = server.generate(prompt, GREEDY)
        assert completion.meta["prompt_tokens"] == len(prompt)
        assert completion.token_ids == reference.greedy(prompt, NEW_TOKENS)


@each_server
def test_eight_at_once(
    server: Client, reference: Reference, prompts: list[list[int]]
) -> None:
    server.flush_cache()
    longest = prompts[-CONCURRENT:]
    completions = server.generate_together(longest, GREEDY)
    assert not any(completion.meta["cached_tokens"] for completion in completions)
    for prompt, completion in zip(longest, completions, strict=True):
        assert completion.token_ids == reference.greedy(prompt, NEW_TOKENS)


@each_server
def test_after_a_prefix_from_the_radix_cache(
    server: Client, reference: Reference, prompts: list[list[int]]
) -> None:
    """The same prompt again, a longer one, and one that leaves it half way."""
    longest = prompts[-1]
    server.flush_cache()
    server.generate(longest, GREEDY)
    answer = reference.greedy(longest, NEW_TOKENS)
    forked = longest[: len(longest) // 2] + prompts[-2][:20]
    for prompt in (longest, [*longest, *answer], forked):
        completion = server.generate(prompt, GREEDY)
        assert completion.token_ids == reference.greedy(prompt, NEW_TOKENS)
        if prompt is not forked:
            assert completion.meta["cached_tokens"] > 0


@pytest.mark.parametrize(
    "server", ["dense_plain", "dense_nextn", "tensor_parallel_nextn"], indirect=True
)
def test_with_an_image(server: Client, reference: Reference) -> None:
    image = gradient()
    completion = server.generate(IMAGE_PROMPT, GREEDY, image_data=data_uri(image))
    assert completion.token_ids == reference.greedy_with_image(
        IMAGE_PROMPT, image, NEW_TOKENS
    )


def test_the_image_matters(nextn: Client) -> None:
    answers = {
        nextn.generate(IMAGE_PROMPT, GREEDY, image_data=data_uri(image)).token_ids
        for image in (gradient(), Image.new("RGB", (96, 64), "white"))
    }
    assert len(answers) == 2


def gradient() -> Image.Image:
    image = Image.new("RGB", (96, 64))
    for x in range(96):
        for y in range(64):
            image.putpixel((x, y), (x * 2, y * 3, (x * y) % 256))
    return image


def data_uri(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
