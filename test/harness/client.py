"""Talks to a server as its users do: its own /generate and the OpenAI client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

Prompt = str | Sequence[int]

GREEDY = {"temperature": 0}


@dataclass(frozen=True)
class Completion:
    """What /generate answers for one sequence.

    Attributes:
        token_ids: the new tokens.
        meta: counts, finish reason, log-probabilities and acceptance, as sent.
    """

    text: str
    token_ids: tuple[int, ...]
    meta: dict[str, Any]

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Completion:
        return cls(answer["text"], tuple(answer["output_ids"]), answer["meta_info"])


class Client:
    """A client of the server at ``url``, whose output goes to the file ``log``."""

    def __init__(self, url: str, log: Path):
        self.url = url
        self.log = log
        # Loopback is never behind a proxy, whatever the environment says.
        self.http = httpx.Client(base_url=url, timeout=300, trust_env=False)

    @cached_property
    def openai(self) -> OpenAI:
        http = httpx.Client(timeout=300, trust_env=False)
        return OpenAI(
            base_url=f"{self.url}/v1", api_key="none", http_client=http, max_retries=0
        )

    @cached_property
    def model(self) -> str:
        """The model's name at the OpenAI endpoints."""
        return self.openai.models.list().data[0].id

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self.http.post(path, json=body)

    def server_info(self) -> dict[str, Any]:
        return dict(self.http.get("/server_info").raise_for_status().json())

    def generate(
        self, prompt: Prompt, sampling: dict[str, Any], **request: Any
    ) -> Completion:
        """Complete one prompt, given as text or as token ids."""
        answer = self.raw_generate(prompt, sampling, **request)
        return Completion.of(answer)

    def raw_generate(
        self, prompt: Prompt, sampling: dict[str, Any], **request: Any
    ) -> Any:
        """Return the JSON that /generate answers: a list where n is above one."""
        body = request_body(prompt, sampling, **request)
        response = self.post("/generate", body)
        assert response.status_code == 200, response.text
        return response.json()

    def generate_together(
        self, prompts: Sequence[Prompt], sampling: dict[str, Any]
    ) -> list[Completion]:
        """Complete every prompt at the same time, each in a request of its own."""
        return self.generate_each(prompts, [sampling] * len(prompts))

    def generate_each(
        self, prompts: Sequence[Prompt], samplings: Sequence[dict[str, Any]]
    ) -> list[Completion]:
        """The same with parameters for each prompt."""
        with ThreadPoolExecutor(len(prompts)) as threads:
            return list(threads.map(self.generate, prompts, samplings))

    def generate_batch(
        self, prompts: Sequence[Prompt], sampling: dict[str, Any]
    ) -> list[Completion]:
        """Complete many prompts, all texts or all token ids, in one request."""
        key = "text" if isinstance(prompts[0], str) else "input_ids"
        body = {key: [*prompts], "sampling_params": sampling}
        response = self.post("/generate", body)
        assert response.status_code == 200, response.text
        return [Completion.of(answer) for answer in response.json()]

    def flush_cache(self) -> None:
        """Empty the radix cache; no request may be running.

        The scheduler may be a step behind the last answer, and is waited for.
        """
        self.http.post("/flush_cache", params={"timeout": 30}).raise_for_status()

    def stream(
        self, prompt: Prompt, sampling: dict[str, Any], **request: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield each chunk of a streamed completion; leaving early disconnects."""
        body = request_body(prompt, sampling, stream=True, **request)
        with self.http.stream("POST", "/generate", json=body) as response:
            for line in response.iter_lines():
                content = line.removeprefix("data: ")
                if line and content != "[DONE]":
                    yield json.loads(content)


def request_body(
    prompt: Prompt, sampling: dict[str, Any], **request: Any
) -> dict[str, Any]:
    key = "text" if isinstance(prompt, str) else "input_ids"
    value = prompt if isinstance(prompt, str) else list(prompt)
    return {key: value, "sampling_params": sampling, **request}
