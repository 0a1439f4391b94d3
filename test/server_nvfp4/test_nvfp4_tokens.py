"""NVFP4 checkpoints served with NEXTN on the CPU, in the layouts that are published."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_qwen.checkpoint import Checkpoint
from tiny_qwen.nvfp4 import COMPRESSED_TENSORS, Recipe, quantize, write

from harness.client import Client
from harness.pool import ServerPool
from harness.prompts import held_out_prompts
from harness.quantized_reference import QuantizedReference
from harness.reference import TokenIds
from harness.servers import SERVERS

NEW_TOKENS = 24
GREEDY = {"temperature": 0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}

# `lm_head` and `mtp.fc` are in BF16 in all of them, as published. The MTP layer is in
# NVFP4 in the first and in BF16 in the others.
W4A4 = {
    "dense": Recipe(parts=("mlp", "attention"), head=True),
    "moe": Recipe(),
}
W4A16 = {
    "dense": Recipe(COMPRESSED_TENSORS, ("mlp", "attention"), weight_only=True),
    "moe": Recipe(weight_only=True),
}
RECIPES = {
    **{f"{model}_w4a4": (model, recipe) for model, recipe in W4A4.items()},
    **{f"{model}_w4a16": (model, recipe) for model, recipe in W4A16.items()},
}

PROMPTS_BY_LENGTH = {1: 2, 2: 4, 5: 4, 17: 4, 64: 4, 65: 4, 129: 4, 300: 2}

# Float32 sums in another order differ by 1e-7, and an activation next to a boundary of
# e2m1 or e4m3 then rounds the other way; one such flip moves a logit by up to 0.8. So
# tokens are defined only where they survive flips. The reference alone says where:
# noise ten times as great must not change any token of a prompt in any of several runs.
# A W4A16 checkpoint rounds no activations, and all of its tokens are defined.
NOISE = 1e-6
RUNS = 16
LEAST_DECIDED = 12
MOST_THAT_FLIPS_MOVE = 1.0


@pytest.fixture(scope="module", params=RECIPES)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A model's name and its quantised checkpoint."""
    model, recipe = RECIPES[request.param]
    source = Path(request.getfixturevalue(f"{model}_model"))
    out = tmp_path_factory.mktemp(f"{request.param}_nvfp4")
    write(quantize(Checkpoint.read(source), recipe), out)
    return model, out


@pytest.fixture
def server(served: tuple[str, Path], server_pool: ServerPool) -> Client:
    name, folder = served
    config = SERVERS[f"{name}_nextn"].config({name: str(folder)})
    (client,) = server_pool.get(config)
    return client


@pytest.fixture(scope="module")
def reference(
    served: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> QuantizedReference:
    return QuantizedReference(served[1], tmp_path_factory.mktemp("dequantized"))


def greedy_by_prompt(reference: QuantizedReference) -> dict[TokenIds, TokenIds]:
    """The reference's tokens after each prompt of ``PROMPTS_BY_LENGTH``."""
    text = reference.tokenizer("\n".join(held_out_prompts())).input_ids
    tokens = {}
    for length, count in PROMPTS_BY_LENGTH.items():
        step = (len(text) - length) // count
        prompts = [tuple(text[i * step :][:length]) for i in range(count)]
        answers = reference.greedy_together(prompts, NEW_TOKENS)
        tokens.update(zip(prompts, answers, strict=True))
    return tokens


def test_greedy_tokens_are_those_of_transformers_with_the_same_quantisation(
    server: Client, reference: QuantizedReference
) -> None:
    greedy = greedy_by_prompt(reference)
    decided = {
        prompt
        for prompt, tokens in greedy.items()
        if reference.survives_noise(prompt, tokens, NOISE, RUNS)
    }
    assert len(decided) >= LEAST_DECIDED
    if not reference.quantizes_inputs:
        assert len(decided) == len(greedy)
    for prompt, tokens in greedy.items():
        served = server.generate(prompt, GREEDY).token_ids
        if prompt in decided:
            assert served == tokens
        else:
            loss = reference.greatest_loss(prompt, served)
            assert loss < MOST_THAT_FLIPS_MOVE


def test_activations_are_quantised_where_the_checkpoint_says_so(
    server: Client, reference: QuantizedReference
) -> None:
    """By the log-probabilities: a reference that differs in it is much further away."""
    prompt = next(p for p in greedy_by_prompt(reference) if len(p) == 17)
    completion = server.generate(prompt, GREEDY, return_logprob=True)
    served = [entry[0] for entry in completion.meta["output_token_logprobs"]]
    tokens = [*prompt, *completion.token_ids]
    apart = distance(served, reference.logprobs(tokens))
    if reference.quantizes_inputs:
        without = reference.logprobs_without_activation_quantisation(tokens)
        assert apart < 0.2 * distance(served, without)
    else:
        assert apart < 1e-4 * NEW_TOKENS


def distance(served: list[float], of_prompt_too: list[float]) -> float:
    other = of_prompt_too[-len(served) :]
    return sum(abs(a - b) for a, b in zip(served, other, strict=True))


def test_the_head_drafts(server: Client) -> None:
    completion = server.generate("def read_lines(path):\n", GREEDY)
    assert completion.meta["spec_accept_rate"] > 0.2
