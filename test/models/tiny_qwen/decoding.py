"""Greedy continuation of a batch, with caches."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tiny_qwen.model import Past, TinyQwen


@torch.no_grad()
def continue_greedily(
    model: TinyQwen, prompts: Sequence[Tensor], new_tokens: int
) -> list[Tensor]:
    """Prompts [n] of any lengths -> each with its continuation, [n + new_tokens].

    All prompts advance together, so the longer ones are read one token at a time from
    the length of the shortest on.
    """
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    shortest, longest = int(lengths.min()), int(lengths.max())
    text = torch.zeros(len(prompts), longest + new_tokens, dtype=torch.long)
    for row, prompt in zip(text, prompts, strict=True):
        row[: len(prompt)] = prompt
    past: Past | None = None
    read = 0
    for written in range(shortest, longest + new_tokens):
        hidden, past = model.hidden_states(text[:, read:written], past)
        best = model.logits(hidden[:, -1]).argmax(-1)
        text[:, written] = torch.where(written < lengths, text[:, written], best)
        read = written
    return [row[: len(p) + new_tokens] for row, p in zip(text, prompts, strict=True)]
