"""Odd but valid checkpoints draft as their plain twins do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_qwen.variants import VARIANTS

from harness.drafts import outcomes_of
from harness.models import DENSE_MODEL, build_variant
from harness.pool import ServerPool
from harness.prompts import held_out_prompts
from harness.servers import SharedServer

TWINS = {name: variant.twin for name, variant in VARIANTS.items() if variant.twin}
NUM_PROMPTS = 8
NEW_TOKENS = 40


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
    prompts = held_out_prompts()[:NUM_PROMPTS]
    expected = outcomes_of(twin, prompts, NEW_TOKENS)
    assert outcomes_of(odd, prompts, NEW_TOKENS) == expected


def folder_of(name: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a variant, the same at every call, so that servers are shared."""
    if name == "dense":
        return str(DENSE_MODEL)
    folder: Path = tmp_path_factory.getbasetemp() / "variants" / name
    if not folder.exists():
        folder.mkdir(parents=True)
        build_variant(name, folder)
    return str(folder)
