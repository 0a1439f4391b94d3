"""Completes a prompt through the OpenAI client and measures it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
from openai import OpenAI

CONCURRENT = 8


@dataclass(frozen=True)
class Acceptance:
    """How many drafts were right.

    Attributes:
        histogram: number of verify steps that accepted 0, 1, 2, … drafts.
    """

    histogram: tuple[int, ...]

    @property
    def verifies(self) -> int:
        return sum(self.histogram)

    @property
    def length(self) -> float:
        """Mean number of tokens that a verify step yields: the drafts and one more."""
        accepted = sum(drafts * count for drafts, count in enumerate(self.histogram))
        return 1 + accepted / self.verifies

    @property
    def by_position(self) -> list[float]:
        """Share of verify steps that accepted the draft at each position."""
        return [
            sum(self.histogram[position:]) / self.verifies
            for position in range(1, len(self.histogram))
        ]

    @classmethod
    def of(cls, details: Sequence[dict[str, Any]]) -> Acceptance | None:
        """Add up the details of several answers; None if nothing was speculated."""
        histograms = [entry["spec_correct_drafts_histogram"] for entry in details]
        if not any(map(sum, histograms)):
            return None
        length = max(map(len, histograms))
        padded = [[*each, *[0] * (length - len(each))] for each in histograms]
        return cls(tuple(map(sum, zip(*padded, strict=True))))


@dataclass(frozen=True)
class Measurement:
    """One completion.

    Attributes:
        seconds: from sending the request to its last token.
    """

    prompt: str
    text: str
    tokens: int
    seconds: float
    acceptance: Acceptance | None

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


class Completer:
    """An OpenAI client of a local server.

    Args:
        url: the server's address, without a path.
    """

    def __init__(self, url: str):
        # Loopback is never behind a proxy, whatever the environment says.
        http = httpx.Client(trust_env=False, timeout=600)
        self.client = OpenAI(base_url=f"{url}/v1", api_key="none", http_client=http)
        self.model = self.client.models.list().data[0].id

    def stream(
        self,
        prompt: str,
        tokens: int,
        show: Callable[[str], object] = lambda text: None,
    ) -> Measurement:
        """Complete one prompt greedily; ``show`` gets each piece of text."""
        start = time.perf_counter()
        last = start
        text = ""
        details: list[dict[str, Any]] = []
        count = 0
        for chunk in self.client.completions.create(
            model=self.model,
            prompt=prompt,
            max_tokens=tokens,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"return_spec_tokens_details": True},
        ):
            details += _details(chunk)
            if chunk.usage is not None:
                count = chunk.usage.completion_tokens
            for choice in chunk.choices:
                if choice.text:
                    last = time.perf_counter()
                    text += choice.text
                    show(choice.text)
        return Measurement(prompt, text, count, last - start, Acceptance.of(details))

    def acceptance(self, prompts: Sequence[str], tokens: int) -> Acceptance | None:
        """Complete many prompts greedily, a few at a time, each to its full length."""

        def details_of(prompt: str) -> list[dict[str, Any]]:
            # One prompt a request: of several, SGLang tells the first one's details.
            completion = self.client.completions.create(
                model=self.model,
                prompt=prompt,
                max_tokens=tokens,
                temperature=0,
                extra_body={"return_spec_tokens_details": True, "ignore_eos": True},
            )
            return _details(completion)

        with ThreadPoolExecutor(CONCURRENT) as threads:
            answers = list(threads.map(details_of, prompts))
        return Acceptance.of([entry for answer in answers for entry in answer])


def _details(answer: Any) -> list[dict[str, Any]]:
    """Return SGLang's speculation details, one for each choice of an answer."""
    extension = getattr(answer, "sglext", None) or {}
    found = extension.get("spec_tokens_details") or []
    return found if isinstance(found, list) else [found]
