"""The committed checkpoint, and its variants built once each."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_qwen.variants import VARIANTS

TRAINED = Path(__file__).parent / "trained"


@pytest.fixture(scope="session")
def trained() -> Path:
    return TRAINED


@pytest.fixture(scope="session")
def variant(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a variant by name; "dense" is the committed checkpoint."""
    built = {"dense": TRAINED}

    def build(name: str) -> Path:
        if name not in built:
            built[name] = tmp_path_factory.mktemp(name)
            VARIANTS[name].build(TRAINED, built[name])
        return built[name]

    return build
