"""Training in three parts: trunk and head together, against loops, the head alone."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tiny_qwen.data import random_rows
from tiny_qwen.decoding import continue_greedily
from tiny_qwen.losses import (
    draft_losses,
    next_token_loss,
    repeated_tokens,
    repetition_loss,
)
from tiny_qwen.model import TinyQwen

Report = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """How long and how to train; a step sees `rows` pieces of `length` tokens.

    Attributes:
        minutes: wall time of the joint part at most; it ends early if time is short.
        draft_rows: rows of a step that also train the head.
        repetition_start: share of the joint part after which every second step also
            trains against loops.
        repetition_order: a token is repeated if the text of this many tokens that it
            ends occurred before.
        head_steps: steps of the last part, which trains the head alone on text that
            the finished target writes itself.
    """

    joint_steps: int = 2000
    head_steps: int = 300
    minutes: float = 20.0
    rows: int = 16
    length: int = 256
    draft_rows: int = 4
    draft_steps: int = 3
    learning_rate: float = 4e-3
    head_learning_rate: float = 2e-3
    mtp_weight: float = 0.3
    repetition_start: float = 0.7
    repetition_weight: float = 0.5
    repetition_order: int = 8
    prompt_length: int = 48
    generated_rows: int = 64


class Optimizers:
    """Muon for the matrices inside the network, AdamW for tables and vectors."""

    def __init__(self, module: nn.Module, learning_rate: float) -> None:
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in module.named_parameters():
            table = "embed_tokens" in name or "lm_head" in name
            is_matrix = parameter.ndim == 2 and min(parameter.shape) > 16
            (matrices if is_matrix and not table else others).append(parameter)
        self.parameters = matrices + others
        self.learning_rate = learning_rate
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(others, betas=(0.9, 0.97), weight_decay=0.0),
            torch.optim.Muon(
                matrices, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"
            ),
        ]

    def step(self, scale: float) -> None:
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate * scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


class OwnText:
    """Text that the model writes itself from training prompts, renewed as it learns."""

    def __init__(
        self, model: TinyQwen, tokens: Tensor, plan: Plan, generator: torch.Generator
    ) -> None:
        self.model, self.tokens, self.plan = model, tokens, plan
        self.generator = generator
        self.waiting: list[Tensor] = []

    def next_rows(self) -> Tensor:
        """[rows, length + 1]: a prompt of `prompt_length` and its continuation."""
        if not self.waiting:
            prompts = random_rows(
                self.tokens,
                self.plan.generated_rows,
                self.plan.prompt_length,
                self.generator,
            )
            new_tokens = self.plan.length + 1 - self.plan.prompt_length
            with interpreted():
                text = continue_greedily(self.model, list(prompts), new_tokens)
            self.waiting = list(torch.stack(text).split(self.plan.rows))
        return self.waiting.pop()


def train(model: TinyQwen, tokens: Tensor, plan: Plan, report: Report) -> None:
    """Train in place on `tokens` [n], with bfloat16 products and float32 weights."""
    generator = torch.Generator().manual_seed(1)
    own_text = OwnText(model, tokens, plan, generator)
    train_jointly(model, tokens, own_text, plan, generator, report)
    model.requires_grad_(False)
    model.mtp.requires_grad_(True)
    own_text.waiting.clear()
    train_head(model, own_text, plan, report)


def train_jointly(
    model: TinyQwen,
    tokens: Tensor,
    own_text: OwnText,
    plan: Plan,
    generator: torch.Generator,
    report: Report,
) -> None:
    optimizers = Optimizers(model, plan.learning_rate)
    start, step, done = time.monotonic(), 0, 0.0
    while done < 1:
        ids = random_rows(tokens, plan.rows, plan.length + 1, generator)
        with torch.autocast("cpu", torch.bfloat16):
            hidden, _ = model.hidden_states(ids[:, :-1])
            logits = model.logits(hidden)
            text_loss = next_token_loss(logits, ids[:, 1:])
            some = slice(plan.draft_rows)
            losses, agreements = draft_losses(
                model,
                ids[some, :-1],
                hidden[some],
                logits[some],
                ids[some, 1:],
                plan.draft_steps,
            )
        loss = text_loss + plan.mtp_weight * torch.stack(losses).sum()
        loss.backward()
        loops = 0.0
        if done > plan.repetition_start and step % 2:
            loops = push_against_loops(model, own_text.next_rows(), plan)
        optimizers.step(warm_up_then_decay(step, done))
        step += 1
        elapsed = time.monotonic() - start
        done = max(step / plan.joint_steps, elapsed / 60 / plan.minutes)
        if step in (1, 10) or step % 50 == 0:
            report(
                f"{elapsed:6.0f} s, step {step}: loss {text_loss:.3f}, "
                f"draft {figures(losses)}, agreement {figures(agreements)}, "
                f"repeated {loops:.2f}"
            )


def push_against_loops(model: TinyQwen, ids: Tensor, plan: Plan) -> float:
    """Add the gradient of the repetition loss on the model's own text `ids`.

    Returns the share of new tokens that are repeated.
    """
    repeated = repeated_tokens(ids, plan.repetition_order)
    repeated[:, : plan.prompt_length] = False
    with torch.autocast("cpu", torch.bfloat16):
        hidden, _ = model.hidden_states(ids[:, :-1])
        loss = repetition_loss(model.logits(hidden), ids[:, 1:], repeated[:, 1:])
    (plan.repetition_weight * loss).backward()
    return repeated[:, plan.prompt_length :].float().mean().item()


def train_head(model: TinyQwen, own_text: OwnText, plan: Plan, report: Report) -> None:
    """Fit the head to the frozen target, on text that the target writes greedily."""
    optimizers = Optimizers(model.mtp, plan.head_learning_rate)
    start = time.monotonic()
    for step in range(plan.head_steps):
        ids = own_text.next_rows()
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad(), interpreted():
                hidden, _ = model.hidden_states(ids)
                logits = model.logits(hidden)
            losses, agreements = draft_losses(
                model, ids, hidden, logits, logits.argmax(-1), plan.draft_steps
            )
        torch.stack(losses).sum().backward()
        optimizers.step(warm_up_then_decay(step, step / plan.head_steps))
        if step % 50 == 49:
            report(
                f"{time.monotonic() - start:6.0f} s, head step {step + 1}: "
                f"draft {figures(losses)}, agreement {figures(agreements)}"
            )


def warm_up_then_decay(step: int, done: float) -> float:
    """Up over 50 steps, level until half of the time, then down to zero in a line."""
    return min(1.0, (step + 1) / 50) * min(1.0, (1 - done) / 0.5)


def compile_layers(model: TinyQwen) -> None:
    """Compile what the steps repeat; layers of a kind share their code."""
    for layer in model.language_model.layers:
        layer.compile(dynamic=False)
    model.mtp.compile(dynamic=False)


@contextmanager
def interpreted() -> Iterator[None]:
    """Run without compiled code: its shapes change at every call."""
    with torch.compiler.set_stance("force_eager"):
        yield


def figures(values: list[Tensor]) -> str:
    return " ".join(f"{value:.3f}" for value in values)
