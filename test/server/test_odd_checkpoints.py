"""Odd but valid checkpoints draft as their plain twins do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_qwen.variants import VARIANTS

from harness.client import Client
from harness.drafts import Outcome
from harness.models import DENSE_MODEL, build_variant
from harness.pool import ServerPool
from harness.prompts import held_out_prompts
from harness.servers import SharedServer

TWINS = {name: variant.twin for name, variant in VARIANTS.items() if variant.twin}
NUM_PROMPTS = 8
GREEDY = {"temperature": 0, "max_new_tokens": 40, "ignore_eos": True}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(TWINS, key=lambda name: (TWINS[name], name)))
def test_an_odd_checkpoint_drafts_as_its_twin(
    server_pool: ServerPool, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    configs = [
        SharedServer("it", True, ()).config({"it": folder_of(each, tmp_path_factory)})
        for each in (name, TWINS[name])
    ]
    odd, twin = server_pool.get(*configs)
    assert odd.server_info()["speculative_algorithm"] == "NEXTN"
    assert outcomes(odd) == outcomes(twin)


def outcomes(client: Client) -> list[Outcome]:
    """One after the other, so that a round holds the same rows in both servers."""
    client.flush_cache()
    prompts = held_out_prompts()[:NUM_PROMPTS]
    return [Outcome.of(client.generate(prompt, GREEDY)) for prompt in prompts]


def folder_of(name: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a variant, the same at every call, so that servers are shared."""
    if name == "dense":
        return str(DENSE_MODEL)
    folder: Path = tmp_path_factory.getbasetemp() / "variants" / name
    if not folder.exists():
        folder.mkdir(parents=True)
        build_variant(name, folder)
    return str(folder)
