"""What the trained model scores: loss, acceptance of drafts, loops in long outputs."""

from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from tiny_qwen.decoding import continue_greedily
from tiny_qwen.losses import draft_losses, next_token_loss
from tiny_qwen.model import TinyQwen

LOOP_TAIL, LONGEST_PERIOD = 32, 16


@dataclass(frozen=True)
class TextScores:
    """On held-out text: loss in nats a token, and the share of rows where draft step k
    agrees with the target's best token."""

    loss: float
    draft_agreement: list[float]


@dataclass(frozen=True)
class Acceptance:
    """One prompt, greedily continued with drafts of `steps` tokens.

    Attributes:
        completion_tokens: the first comes from the prefill, the others from verifies.
        verifies: verify passes of the target.
        accepted: drafts accepted at each position, over all verifies.
    """

    completion_tokens: int
    verifies: int
    accepted: list[int]

    @property
    def accept_length(self) -> float:
        """`spec_accept_length` as SGLang reports it for a request."""
        return self.completion_tokens / self.verifies


@torch.no_grad()
def score_text(model: TinyQwen, rows: Tensor, steps: int) -> TextScores:
    """rows [batch, n] of held-out tokens."""
    hidden, _ = model.hidden_states(rows[:, :-1])
    logits = model.logits(hidden)
    labels = rows[:, 1:]
    _, agreements = draft_losses(model, rows[:, :-1], hidden, logits, labels, steps)
    loss = next_token_loss(logits, labels).item()
    return TextScores(loss, [agreement.item() for agreement in agreements])


@torch.no_grad()
def draft_is_right(model: TinyQwen, text: Tensor, steps: int) -> Tensor:
    """[rows, steps]: do the draft steps 1 to k of row i give text[i + 2 : i + k + 2]?

    Args:
        text: [n]; what the target continues greedily, at least from the first row of
            interest on. rows is n - steps - 1.

    Teacher forcing gives exactly what serving computes: where an earlier draft of the
    chain was right, the token it reads is the text's, and where it was wrong, the rest
    of the chain is thrown away.
    """
    ids = text[None]
    rows = len(text) - steps - 1
    hidden, _ = model.hidden_states(ids)
    right = []
    outputs = model.draft_hidden_states(ids, hidden[:, :rows], steps)
    for step, output in enumerate(outputs, 1):
        wanted = text[step + 1 : step + 1 + rows]
        right.append(model.logits(output)[0].argmax(-1) == wanted)
    return torch.stack(right, -1).long().cumprod(-1).bool()


def simulate_nextn(
    model: TinyQwen, text: Tensor, prompt_length: int, new_tokens: int, steps: int
) -> Acceptance:
    """Walk the rounds of greedy NEXTN, a chain of `steps` drafts, over one prompt.

    Args:
        text: [n]; the prompt and its greedy continuation, at least new_tokens + steps
            + 1 tokens of it, so that the last round can be counted in full.
    """
    right = draft_is_right(model, text, steps)
    completed, verifies, accepted = 1, 0, [0] * steps
    while completed < new_tokens:
        # The last token has no hidden state yet: the row before it drafts.
        row = prompt_length + completed - 2
        for step in range(steps):
            accepted[step] += int(right[row, step])
        completed += int(right[row].sum()) + 1
        verifies += 1
    return Acceptance(min(completed, new_tokens), verifies, accepted)


def simulate_prompts(
    model: TinyQwen, prompts: list[Tensor], new_tokens: int, steps: int
) -> list[Acceptance]:
    """Continue every prompt [n] greedily, and walk the rounds that it takes."""
    texts = continue_greedily(model, prompts, new_tokens + steps + 1)
    return [
        simulate_nextn(model, text, len(prompt), new_tokens, steps)
        for text, prompt in zip(texts, prompts, strict=True)
    ]


def ends_in_loop(ids: list[int]) -> bool:
    """True if the last LOOP_TAIL tokens have a period of at most LONGEST_PERIOD."""
    tail = ids[-LOOP_TAIL:]
    periods = range(1, LONGEST_PERIOD + 1)
    return any(tail[period:] == tail[:-period] for period in periods)


def encode(tokenizer: Tokenizer, text: str) -> Tensor:
    return torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids)


def load_tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))
