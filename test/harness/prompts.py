"""Prompts from text that the checkpoint was not trained on."""

from __future__ import annotations

import json
from typing import Any

from harness.models import MODELS

HELD_OUT = MODELS / "held_out_prompts.json"

# One token, both sides of the 64 tokens of a linear-attention chunk and of the 128
# tokens of a prefill chunk, and more than two prefill chunks.
LENGTHS = (1, 2, 5, 17, 63, 64, 65, 129, 300)


def held_out_prompts() -> list[str]:
    """Return the prompts by which the checkpoint's acceptance is stated."""
    prompts: list[str] = json.loads(HELD_OUT.read_text("utf-8"))
    return prompts


def prompts_of_many_lengths(tokenizer: Any) -> list[list[int]]:
    """Return a prompt of each length in ``LENGTHS``, no two with the same start."""
    tokens = tokenizer("\n".join(held_out_prompts())).input_ids
    step = (len(tokens) - max(LENGTHS)) // len(LENGTHS)
    return [tokens[i * step : i * step + length] for i, length in enumerate(LENGTHS)]
