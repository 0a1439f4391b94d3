"""What training minimises."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tiny_qwen.model import TinyQwen


def next_token_loss(logits: Tensor, ids: Tensor) -> Tensor:
    """Cross entropy of logits [batch, rows, vocab] against ids [batch, rows]."""
    return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


def draft_losses(
    model: TinyQwen,
    ids: Tensor,
    hidden: Tensor,
    target_logits: Tensor,
    labels: Tensor,
    steps: int,
) -> tuple[list[Tensor], list[Tensor]]:
    """Loss and agreement of each draft step with the target, under teacher forcing.

    The loss is half cross entropy against `labels` and half against the target's own
    distribution, which is what acceptance depends on.

    Args:
        ids: the text [batch, n].
        hidden, target_logits: the target's [batch, n, ...].
        labels: [batch, n]; labels[i] is what the target's row i should predict.

    Returns:
        losses, and shares of rows whose best token is the target's, one each a step.
    """
    rows = ids.shape[1] - steps
    soft = target_logits.detach().softmax(-1)
    best = target_logits.argmax(-1)
    losses, agreements = [], []
    outputs = model.draft_hidden_states(ids, hidden[:, :rows], steps)
    for step, output in enumerate(outputs, 1):
        logits = model.logits(output)
        at = slice(step, step + rows)
        hard_loss = next_token_loss(logits, labels[:, at])
        soft_loss = F.cross_entropy(logits.flatten(0, 1), soft[:, at].flatten(0, 1))
        losses.append((hard_loss + soft_loss) / 2)
        agreements.append((logits.argmax(-1) == best[:, at]).float().mean())
    return losses, agreements


def repetition_loss(logits: Tensor, ids: Tensor, repeated: Tensor) -> Tensor:
    """Unlikelihood -log(1 - p) of the repeated tokens in the model's own text.

    Welleck et al., Neural Text Generation with Unlikelihood Training, arXiv:1908.04319.

    Args:
        logits: [batch, rows, vocab]; row i predicts ids[i].
        ids: [batch, rows].
        repeated: [batch, rows], True where ids[i] goes on with a loop.
    """
    log_probability = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    unlikelihood = -torch.log1p(-log_probability.exp().clamp(max=1 - 1e-4))
    return (unlikelihood * repeated).sum() / repeated.sum().clamp(min=1)


def repeated_tokens(ids: Tensor, order: int) -> Tensor:
    """[batch, n] -> [batch, n]: True where the last `order` tokens occurred before."""
    grams = F.pad(ids, (order - 1, 0), value=-1).unfold(1, order, 1)
    same = (grams[:, :, None] == grams[:, None, :]).all(-1)
    return same.tril(-1).any(-1)
