"""Log-probabilities with NEXTN, of output and of prompt, against transformers."""

from __future__ import annotations

import pytest

from harness.client import Client
from harness.prompts import prompts_of_many_lengths
from harness.reference import Reference
from harness.servers import SERVERS

TOLERANCE = 1e-4
GREEDY = {"temperature": 0, "max_new_tokens": 32, "ignore_eos": True}
ALL = {"return_logprob": True, "logprob_start_len": 0}

dense = pytest.mark.parametrize(
    "server", [name for name in SERVERS if name.startswith("dense")], indirect=True
)


@dense
def test_logprobs_of_prompt_and_output(server: Client, reference: Reference) -> None:
    for prompt in prompts_of_many_lengths(reference.tokenizer)[1::3]:
        completion = server.generate(prompt, GREEDY, **ALL)
        expected = reference.logprobs([*prompt, *completion.token_ids])
        of_prompt = completion.meta["input_token_logprobs"]
        of_output = completion.meta["output_token_logprobs"]
        assert [token for _, token, _ in of_prompt] == prompt
        assert tuple(token for _, token, _ in of_output) == completion.token_ids
        assert of_prompt[0][0] is None
        found = [value for value, _, _ in [*of_prompt[1:], *of_output]]
        assert found == pytest.approx(expected, abs=TOLERANCE)


def test_sampled_tokens_have_their_own_logprobs(
    nextn: Client, reference: Reference
) -> None:
    prompt = prompts_of_many_lengths(reference.tokenizer)[3]
    sampling = {**GREEDY, "temperature": 1.0}
    completion = nextn.generate(prompt, sampling, **ALL)
    assert completion.token_ids != reference.greedy(prompt, 32)
    expected = reference.logprobs([*prompt, *completion.token_ids])[len(prompt) - 1 :]
    found = [value for value, _, _ in completion.meta["output_token_logprobs"]]
    assert found == pytest.approx(expected, abs=TOLERANCE)


def test_top_logprobs_and_those_of_given_tokens(nextn: Client, plain: Client) -> None:
    request = {**ALL, "top_logprobs_num": 4, "token_ids_logprob": [34, 46]}
    ours, theirs = (
        client.generate("class Queue:\n", GREEDY, **request).meta
        for client in (nextn, plain)
    )
    for side in ("input", "output"):
        for kind in ("top_logprobs", "token_ids_logprobs"):
            key = f"{side}_{kind}"
            assert len(ours[key]) == len(theirs[key])
            for one, other in zip(ours[key], theirs[key], strict=True):
                assert_same_entries(one, other)


def assert_same_entries(one: list | None, other: list | None) -> None:
    if one is None or other is None:
        assert one is other
        return
    assert [entry[1] for entry in one] == [entry[1] for entry in other]
    values = [entry[0] for entry in other]
    assert [entry[0] for entry in one] == pytest.approx(values, abs=TOLERANCE)
