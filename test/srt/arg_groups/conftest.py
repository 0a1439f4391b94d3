"""The fork and the stock wheel side by side, and models that are a config.json each."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_configs import write_config
from resolver import Resolver


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target and the drafts that people give it, by kind."""
    root = tmp_path_factory.mktemp("models")
    return {
        name: write_config(root / name, architectures=[architecture])
        for name, architecture in (
            ("llama", "LlamaForCausalLM"),
            ("eagle", "LlamaForCausalLMEagle"),
            ("eagle3", "LlamaForCausalLMEagle3"),
            ("gemma4", "Gemma4AssistantForCausalLM"),
        )
    }


@pytest.fixture(scope="session")
def fork(models: dict[str, Path]) -> Iterator[Resolver]:
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.origin is not None
    resolver = Resolver(Path(spec.origin).parent.parent, models["llama"])
    yield resolver
    resolver.close()


@pytest.fixture(scope="session")
def stock(models: dict[str, Path], upstream_tree: Path) -> Iterator[Resolver]:
    resolver = Resolver(upstream_tree, models["llama"])
    yield resolver
    resolver.close()
