"""NVFP4 checkpoints served with NEXTN on the CPU, with and without an NVFP4 head."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_qwen.checkpoint import Checkpoint
from tiny_qwen.nvfp4 import Recipe, quantize, write

from harness.client import Client
from harness.pool import ServerPool
from harness.prompts import prompts_of_many_lengths
from harness.quantized_reference import QuantizedReference
from harness.servers import SERVERS

NEW_TOKENS = 48
GREEDY = {"temperature": 0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}

# The MoE has its head in BF16, as published; `mtp.fc` is in BF16 in both.
RECIPES = {"dense": Recipe(parts=("mlp", "attention"), head=True), "moe": Recipe()}

# Float32 sums in another order differ by 1e-7, and an activation next to a boundary of
# e2m1 or e4m3 then rounds the other way. Noise of 1e-7 at the inputs of the quantised
# layers of the reference flips a few of a million activations in one run of four, and
# one flip moves the logits of these models by up to one.
MOST_THAT_A_FLIP_MOVES = 1.0
MOST_PROMPTS_WITH_A_FLIP = 3


@pytest.fixture(scope="module", params=RECIPES)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A model's name and its quantised checkpoint."""
    source = Path(request.getfixturevalue(f"{request.param}_model"))
    out = tmp_path_factory.mktemp(f"{request.param}_nvfp4")
    write(quantize(Checkpoint.read(source), RECIPES[request.param]), out)
    return request.param, out


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


def test_greedy_tokens_are_those_of_transformers_with_the_same_quantisation(
    server: Client, reference: QuantizedReference
) -> None:
    differing = 0
    for prompt in prompts_of_many_lengths(reference.tokenizer):
        tokens = server.generate(prompt, GREEDY).token_ids
        if tokens != reference.greedy(prompt, NEW_TOKENS):
            differing += 1
            loss = reference.greatest_loss(prompt, tokens)
            assert loss < MOST_THAT_A_FLIP_MOVES
    assert differing <= MOST_PROMPTS_WITH_A_FLIP


def test_the_server_quantises_activations(
    server: Client, reference: QuantizedReference
) -> None:
    """A reference that does not is much further away, by the log-probabilities."""
    prompt = prompts_of_many_lengths(reference.tokenizer)[0]
    completion = server.generate(prompt, GREEDY, return_logprob=True)
    served = [entry[0] for entry in completion.meta["output_token_logprobs"]]
    tokens = [*prompt, *completion.token_ids]
    without = reference.logprobs_without_activation_quantisation(tokens)
    assert distance(served, reference.logprobs(tokens)) < 0.2 * distance(
        served, without
    )


def distance(served: list[float], of_prompt_too: list[float]) -> float:
    other = of_prompt_too[-len(served) :]
    return sum(abs(a - b) for a, b in zip(served, other, strict=True))


def test_the_head_drafts(server: Client) -> None:
    completion = server.generate("def read_lines(path):\n", GREEDY)
    assert completion.meta["spec_accept_rate"] > 0.2
