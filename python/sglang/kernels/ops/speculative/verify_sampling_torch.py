"""Sampling verify of drafted tokens in plain PyTorch, for platforms without kernels.

Both functions take the arguments of the kernels that they stand in for and fill
``predicts``, ``accept_index`` and ``accept_token_num`` in place:

- predicts: int32 [batch_size * num_draft_tokens], the token that follows each row.
- accept_index: int32 [batch_size, num_slots], rows of accepted nodes, -1 beyond.
- accept_token_num: int32 [batch_size], accepted drafts, the bonus token aside.
- candidates: [batch_size, num_draft_tokens], drafted tokens; column 0 is the root.
- retrive_index, retrive_next_token, retrive_next_sibling: [batch_size,
  num_draft_tokens], the row of each node, its first child and next sibling or -1.
- uniform_samples: float32 [batch_size, num_draft_tokens], coins in [0, 1).
- uniform_samples_for_final_sampling: float32 [batch_size].
- target_probs: float32 [batch_size, num_draft_tokens, vocab_size].
"""

from typing import List

import torch


def tree_speculative_sampling_target_only_torch(
    predicts: torch.Tensor,  # mutable
    accept_index: torch.Tensor,  # mutable
    accept_token_num: torch.Tensor,  # mutable
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    uniform_samples: torch.Tensor,
    uniform_samples_for_final_sampling: torch.Tensor,
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,  # mutable
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,  # not used
) -> None:
    """Walk each draft tree with one coin a level, against the target alone.

    At a node the coin picks the child in whose slice of the target's cumulative
    probability it falls. With thresholds of one this draws from the target exactly;
    lower thresholds accept more. ``draft_probs`` comes in as zeros and collects the
    target probability of rejected children, which the final draw leaves out.
    """
    num_slots = accept_index.shape[1]
    for b in range(candidates.shape[0]):
        rows = retrive_index[b].tolist()
        tokens = candidates[b].tolist()
        first_child = retrive_next_token[b].tolist()
        next_sibling = retrive_next_sibling[b].tolist()
        coins = uniform_samples[b].tolist()
        path = [0]
        while len(path) < num_slots:
            node = path[-1]
            mass = 0.0
            child = first_child[node]
            while child != -1:
                prob = float(target_probs[b, node, tokens[child]])
                mass += prob
                if prob > 0.0 and (
                    coins[node] < mass / threshold_acc or prob >= threshold_single
                ):
                    break
                draft_probs[b, node, tokens[child]] = target_probs[
                    b, node, tokens[child]
                ]
                child = next_sibling[child]
            if child == -1:
                break
            path.append(child)
        residual = target_probs[b, path[-1]]
        if len(path) < num_slots:
            residual = (residual - draft_probs[b, path[-1]]).clamp_(min=0.0)
        bonus = _draw(residual, float(uniform_samples_for_final_sampling[b]))
        _write_path(
            predicts,
            accept_index[b],
            accept_token_num[b],
            rows=[rows[node] for node in path],
            next_tokens=[*(tokens[node] for node in path[1:]), bonus],
        )


def chain_speculative_sampling_torch(
    predicts: torch.Tensor,  # mutable
    accept_index: torch.Tensor,  # mutable
    accept_token_num: torch.Tensor,  # mutable
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,  # not used in chain verification
    retrive_next_sibling: torch.Tensor,  # not used in chain verification
    uniform_samples: torch.Tensor,
    uniform_samples_for_final_sampling: torch.Tensor,
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    threshold_single: float,  # not used
    threshold_acc: float,  # not used
    deterministic: bool,  # not used
    *,
    block_verification: bool = False,
) -> None:
    """Rejection sampling of a chain against the distribution that it was drawn from.

    Token by token (https://arxiv.org/abs/2211.17192) or, with ``block_verification``,
    the longest prefix at once (https://arxiv.org/abs/2403.10444, Algorithm 2).

    Args:
        draft_probs: float32 [batch_size, num_draft_tokens - 1, vocab_size].
    """
    num_drafts = candidates.shape[1] - 1
    verify = _block_verify if block_verification else _token_verify
    for b in range(candidates.shape[0]):
        rows = retrive_index[b].tolist()
        tokens = candidates[b].tolist()
        coins = uniform_samples[b].tolist()
        target, draft = target_probs[b], draft_probs[b]
        num_accept, scale = verify(tokens[1:], coins, target, draft)
        residual = target[num_accept]
        if num_accept < num_drafts:
            residual = _residual(scale, residual, draft[num_accept])
        bonus = _draw(residual, float(uniform_samples_for_final_sampling[b]))
        _write_path(
            predicts,
            accept_index[b],
            accept_token_num[b],
            rows=rows[: num_accept + 1],
            next_tokens=[*tokens[1 : num_accept + 1], bonus],
        )


def _token_verify(
    drafts: List[int],
    coins: List[float],
    target: torch.Tensor,
    draft: torch.Tensor,
) -> tuple[int, float]:
    """Return how many drafts are accepted one by one, and the residual's scale, 1."""
    for step, token in enumerate(drafts):
        p, q = float(target[step, token]), float(draft[step, token])
        if not (0.0 < q <= 1.0 and coins[step] * q < p):
            return step, 1.0
    return len(drafts), 1.0


def _block_verify(
    drafts: List[int],
    coins: List[float],
    target: torch.Tensor,
    draft: torch.Tensor,
) -> tuple[int, float]:
    """Return the longest accepted prefix and the target's scale in its residual."""
    scale, scales = 1.0, []
    for step, token in enumerate(drafts):
        p, q = float(target[step, token]), float(draft[step, token])
        scale = min(scale * p / q, 1.0) if 0.0 < q <= 1.0 else 0.0
        scales.append(scale)
    for length in range(len(drafts), 0, -1):
        scale = scales[length - 1]
        accept_prob = scale
        if length < len(drafts) and 0.0 < scale < 1.0:
            mass = float(_residual(scale, target[length], draft[length]).sum())
            accept_prob = mass / (mass + 1.0 - scale)
        if coins[length - 1] < accept_prob:
            return length, scale
    return 0, 1.0


def _residual(scale: float, target: torch.Tensor, draft: torch.Tensor) -> torch.Tensor:
    """What the target has above the draft, whose values must be probabilities."""
    valid = (draft >= 0.0) & (draft <= 1.0)
    return (scale * target - torch.where(valid, draft, 0.0)).clamp_(min=0.0)


def _draw(weights: torch.Tensor, coin: float) -> int:
    """Return the index in whose slice of the cumulative weights the coin falls."""
    cumulative = weights.double().cumsum(dim=-1)
    total = float(cumulative[-1])
    if total <= 0.0:
        # Rounding alone leaves nothing: the rejected drafts had all of the mass.
        return weights.numel() - 1
    index = int((cumulative <= coin * total).sum())
    return min(index, int(weights.nonzero()[-1]))


def _write_path(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    *,
    rows: List[int],
    next_tokens: List[int],
) -> None:
    """Record one request's accepted rows and the token that follows each."""
    rows_tensor = torch.tensor(rows, dtype=accept_index.dtype)
    accept_index[: len(rows)] = rows_tensor
    accept_token_num.fill_(len(rows) - 1)
    predicts[rows_tensor.long()] = torch.tensor(next_tokens, dtype=predicts.dtype)
