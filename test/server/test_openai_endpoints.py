"""The OpenAI endpoints answer with NEXTN what they answer without it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_greedy_tokens import data_uri, gradient

from harness.client import Client

PROMPT = "def parse_args(argv):\n"
MESSAGES = [{"role": "user", "content": "def parse_args(argv):"}]
SCHEMA = {
    "type": "object",
    "properties": {"result": {"type": "string", "maxLength": 10}},
    "required": ["result"],
}
COUNTS = {"return_spec_tokens_details": True}


def complete(client: Client, **request: Any) -> Any:
    settings = {"temperature": 0, "max_tokens": 40, **request}
    return client.openai.completions.create(
        model=client.model, prompt=PROMPT, **settings
    )


def chat(client: Client, **request: Any) -> Any:
    settings = {"temperature": 0, "max_tokens": 40, "messages": MESSAGES, **request}
    return client.openai.chat.completions.create(model=client.model, **settings)


def text_of(completion: Any) -> list[str]:
    return [choice.text for choice in completion.choices]


def content_of(completion: Any) -> list[str]:
    return [choice.message.content for choice in completion.choices]


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"n": 2},
        {"stop": ["return"]},
        {"echo": True},
        {"frequency_penalty": 0.7, "presence_penalty": 0.2},
        {"logit_bias": {"46": -100}},
        {"extra_body": {"regex": "[a-z]{3,5};"}},
    ],
    ids=lambda request: "-".join(request) or "plain",
)
def test_completions(nextn: Client, plain: Client, request_: dict[str, Any]) -> None:
    ours, theirs = (complete(client, **request_) for client in (nextn, plain))
    assert text_of(ours) == text_of(theirs)
    assert all(text_of(ours))
    assert [c.finish_reason for c in ours.choices] == [
        c.finish_reason for c in theirs.choices
    ]
    assert ours.usage.completion_tokens == theirs.usage.completion_tokens


def test_completion_logprobs(nextn: Client, plain: Client) -> None:
    ours, theirs = (
        complete(client, logprobs=3, echo=True).choices[0].logprobs
        for client in (nextn, plain)
    )
    assert ours.tokens == theirs.tokens
    assert ours.token_logprobs[1:] == pytest.approx(theirs.token_logprobs[1:], abs=1e-4)


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"n": 2},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "result", "schema": SCHEMA},
            }
        },
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "image_url",
                            "image_url": {"url": data_uri(gradient())},
                        },
                        {"type": "text", "text": "def read("},
                    ],
                }
            ]
        },
    ],
    ids=["plain", "n", "json_schema", "image"],
)
def test_chat_completions(
    nextn: Client, plain: Client, request_: dict[str, Any]
) -> None:
    ours, theirs = (chat(client, **request_) for client in (nextn, plain))
    assert content_of(ours) == content_of(theirs)
    assert all(content_of(ours))
    assert ours.usage.prompt_tokens == theirs.usage.prompt_tokens
    if "response_format" in request_:
        assert list(json.loads(content_of(ours)[0])) == ["result"]


def test_streamed_completion_is_the_whole_one(nextn: Client) -> None:
    whole = complete(nextn)
    chunks = list(complete(nextn, stream=True, stream_options={"include_usage": True}))
    parts = [chunk.choices[0].text for chunk in chunks if chunk.choices]
    assert len(parts) > 3
    assert "".join(parts) == whole.choices[0].text
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_streamed_chat_is_the_whole_one(nextn: Client) -> None:
    whole = chat(nextn)
    parts = [
        chunk.choices[0].delta.content or ""
        for chunk in chat(nextn, stream=True)
        if chunk.choices
    ]
    assert len(parts) > 3
    assert "".join(parts) == whole.choices[0].message.content


def test_acceptance_is_told_on_request(nextn: Client, plain: Client) -> None:
    details = complete(nextn, extra_body=COUNTS).sglext["spec_tokens_details"]
    assert details["spec_verify_ct"] == sum(details["spec_correct_drafts_histogram"])
    assert 1 < details["spec_accept_length"] <= 4
    assert not getattr(complete(plain, extra_body=COUNTS), "sglext", None)
