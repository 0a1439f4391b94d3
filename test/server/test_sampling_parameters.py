"""What a request asks for beyond greedy tokens is the same with and without NEXTN."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from harness.client import Client, Completion

PROMPT = "def merge(left, right):\n    "
GREEDY = {"temperature": 0, "max_new_tokens": 64, "ignore_eos": True}
SCHEMA = {
    "type": "object",
    "properties": {"result": {"type": "string", "maxLength": 12}},
    "required": ["result"],
}
NESTED_SCHEMA = {
    "type": "object",
    "properties": {
        "side": {"enum": ["left", "right"]},
        "flags": {
            "type": "array",
            "items": {"type": "boolean"},
            "minItems": 2,
            "maxItems": 3,
        },
    },
    "required": ["side", "flags"],
}

Sampling = dict[str, Any] | Callable[[Completion], dict[str, Any]]
Check = Callable[[Completion, Completion], bool]


@dataclass(frozen=True)
class Case:
    """A request's parameters, and what they must do to its completion.

    Attributes:
        sampling: parameters beyond those of ``GREEDY``, or a function that makes them
            from the greedy completion, so that they are sure to change it.
        works: gets the completion and the greedy one.
    """

    sampling: Sampling
    works: Check

    def parameters(self, greedy: Completion) -> dict[str, Any]:
        own = self.sampling(greedy) if callable(self.sampling) else self.sampling
        return {**GREEDY, **own}


def repeats(completion: Completion) -> int:
    """The number of tokens that have occurred before."""
    return sum(count - 1 for count in Counter(completion.token_ids).values())


def repeats_less(completion: Completion, greedy: Completion) -> bool:
    return repeats(completion) < repeats(greedy)


def ends_with_stop(completion: Completion, greedy: Completion) -> bool:
    reason = completion.meta["finish_reason"]
    return bool(
        reason["type"] == "stop" and len(completion.token_ids) < len(greedy.token_ids)
    )


CASES = {
    "json_schema": Case(
        {"json_schema": json.dumps(SCHEMA), "ignore_eos": False},
        lambda ours, _: list(json.loads(ours.text)) == ["result"],
    ),
    "nested_json_schema": Case(
        {
            "json_schema": json.dumps(NESTED_SCHEMA),
            "ignore_eos": False,
            "max_new_tokens": 200,
        },
        lambda ours, _: len(json.loads(ours.text)["flags"]) in (2, 3),
    ),
    "regex": Case(
        {"regex": r"[a-z]{3,6} = [0-9]{1,4};", "ignore_eos": False},
        lambda ours, _: (
            re.fullmatch(r"[a-z]{3,6} = [0-9]{1,4};", ours.text) is not None
        ),
    ),
    "ebnf": Case(
        {"ebnf": 'root ::= ("left" | "right")+ "!"', "ignore_eos": False},
        lambda ours, _: re.match(r"(left|right)+", ours.text) is not None,
    ),
    "repetition_penalty": Case({"repetition_penalty": 1.3}, repeats_less),
    "frequency_penalty": Case({"frequency_penalty": 0.7}, repeats_less),
    "presence_penalty": Case({"presence_penalty": 0.9}, repeats_less),
    "all_penalties": Case(
        {
            "repetition_penalty": 1.1,
            "frequency_penalty": 0.3,
            "presence_penalty": 0.2,
        },
        repeats_less,
    ),
    "min_new_tokens": Case(
        lambda greedy: {
            "min_new_tokens": 40,
            "stop_token_ids": list(greedy.token_ids[5:8]),
        },
        lambda ours, greedy: (
            len(ours.token_ids) >= 40
            and not {*greedy.token_ids[5:8]} & {*ours.token_ids[:40]}
        ),
    ),
    "logit_bias": Case(
        lambda greedy: {"logit_bias": {str(greedy.token_ids[9]): -100, "34": 1.5}},
        lambda ours, greedy: greedy.token_ids[9] not in ours.token_ids,
    ),
    "stop_string": Case(
        lambda greedy: {"stop": ["never there", greedy.text[40:44]]},
        lambda ours, greedy: (
            ends_with_stop(ours, greedy)
            and ours.text == greedy.text[: greedy.text.index(greedy.text[40:44])]
        ),
    ),
    "kept_stop_string": Case(
        lambda greedy: {"stop": [greedy.text[40:44]], "no_stop_trim": True},
        lambda ours, greedy: (
            ends_with_stop(ours, greedy) and greedy.text[40:44] in ours.text
        ),
    ),
    "stop_regex": Case(
        lambda greedy: {"stop_regex": [re.escape(greedy.text[50:53]) + "."]},
        ends_with_stop,
    ),
    "stop_token_ids": Case(
        lambda greedy: {
            "stop_token_ids": [0, greedy.token_ids[20]],
            "ignore_eos": False,
        },
        lambda ours, greedy: (
            ends_with_stop(ours, greedy)
            and ours.meta["finish_reason"]["matched"] == greedy.token_ids[20]
        ),
    ),
    "one_new_token": Case(
        {"max_new_tokens": 1}, lambda ours, _: len(ours.token_ids) == 1
    ),
    "top_k_of_one": Case(
        {"temperature": 1.0, "top_k": 1},
        lambda ours, greedy: ours.token_ids == greedy.token_ids,
    ),
}


@pytest.fixture
def greedy(plain: Client) -> Completion:
    return plain.generate(PROMPT, GREEDY)


@pytest.mark.parametrize("name", CASES)
def test_same_answer_with_and_without_nextn(
    nextn: Client, plain: Client, greedy: Completion, name: str
) -> None:
    case = CASES[name]
    parameters = case.parameters(greedy)
    ours, theirs = (client.generate(PROMPT, parameters) for client in (nextn, plain))
    assert ours.token_ids == theirs.token_ids
    assert ours.text == theirs.text
    assert ours.meta["finish_reason"] == theirs.meta["finish_reason"]
    assert case.works(ours, greedy), ours.text


def test_requests_of_every_kind_in_one_batch(
    nextn: Client, plain: Client, greedy: Completion
) -> None:
    """Grammars, penalties and stops of one request leave the others alone."""
    parameters = [case.parameters(greedy) for case in CASES.values()]
    prompts = [PROMPT] * len(parameters)
    with_nextn, without = (
        client.generate_each(prompts, parameters) for client in (nextn, plain)
    )
    different = [
        name
        for name, ours, theirs in zip(CASES, with_nextn, without, strict=True)
        if ours.token_ids != theirs.token_ids
    ]
    assert not different


def test_n_gives_equal_greedy_answers(nextn: Client, plain: Client) -> None:
    sampling = {**GREEDY, "n": 2}
    answers = [
        tuple(answer["output_ids"])
        for client in (nextn, plain)
        for answer in client.raw_generate(PROMPT, sampling)
    ]
    assert len(answers) == 4
    assert len(set(answers)) == 1
