"""The checkpoints that servers run on, and text that they were not trained on."""

from __future__ import annotations

from pathlib import Path

from tiny_qwen.variants import VARIANTS

MODELS = Path(__file__).resolve().parent.parent / "models"
DENSE_MODEL = MODELS / "trained"


def build_variant(name: str, out: Path) -> Path:
    """Write a variant of the dense checkpoint into the folder ``out``."""
    VARIANTS[name].build(DENSE_MODEL, out)
    return out
