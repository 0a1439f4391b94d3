"""The fork and the stock wheel side by side, and models that are a config.json each."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from resolver import Resolver
from wheel.wheelfile import WheelFile

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 256,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}


def write_config(folder: Path, **changes: Any) -> Path:
    """Write a model that is enough to resolve arguments with: its configuration."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA | changes))
    return folder


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
        )
    }


@pytest.fixture(scope="session")
def stock_tree(upstream_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Upstream's own package, unpacked."""
    tree = tmp_path_factory.mktemp("stock")
    with WheelFile(upstream_wheel) as archive:
        archive.extractall(tree)
    return tree


@pytest.fixture(scope="session")
def fork(models: dict[str, Path]) -> Iterator[Resolver]:
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.origin is not None
    resolver = Resolver(Path(spec.origin).parent.parent, models["llama"])
    yield resolver
    resolver.close()


@pytest.fixture(scope="session")
def stock(models: dict[str, Path], stock_tree: Path) -> Iterator[Resolver]:
    resolver = Resolver(stock_tree, models["llama"])
    yield resolver
    resolver.close()
