"""Filters of token distributions: top-k, top-p and min-p with renormalization."""

import torch


def _per_row(values: torch.Tensor | float, probs: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(values).expand(probs.shape[0])


def _renormalize(kept: torch.Tensor) -> torch.Tensor:
    return kept / kept.sum(dim=-1, keepdim=True)


def top_k_renorm_prob(probs: torch.Tensor, top_ks: torch.Tensor | int) -> torch.Tensor:
    """Keep every row's k most probable tokens, and those as probable as the last.

    Args:
        probs: [num_rows, vocab_size] float.
        top_ks: [num_rows] int, or one for all; vocab_size or more keeps everything.

    Returns:
        [num_rows, vocab_size], rows summing to 1.
    """
    vocab_size = probs.shape[-1]
    top_ks = _per_row(top_ks, probs).clamp(min=1)
    rows = (top_ks < vocab_size).nonzero().squeeze(-1)
    if rows.numel() == 0:
        return probs
    limited, last = probs[rows], top_ks[rows].to(torch.int64) - 1
    highest = limited.topk(int(last.max()) + 1, dim=-1).values
    threshold = highest.gather(-1, last[:, None])
    kept = torch.where(limited >= threshold, limited, 0)
    return probs.index_copy(0, rows, _renormalize(kept))


def top_p_renorm_prob(
    probs: torch.Tensor, top_ps: torch.Tensor | float
) -> torch.Tensor:
    """Keep every row's fewest most probable tokens that hold a probability of p.

    Args:
        probs: [num_rows, vocab_size] float, rows summing to 1.
        top_ps: [num_rows] float, or one for all; 1 or more keeps everything.

    Returns:
        [num_rows, vocab_size], rows summing to 1.
    """
    top_ps = _per_row(top_ps, probs)
    rows = (top_ps < 1).nonzero().squeeze(-1)
    if rows.numel() == 0:
        return probs
    ordered, tokens = probs[rows].sort(dim=-1, descending=True, stable=True)
    held_before = ordered.cumsum(-1) - ordered
    keep = held_before < top_ps[rows, None]
    keep[:, 0] = True
    kept = torch.zeros_like(ordered).scatter_(-1, tokens, ordered * keep)
    return probs.index_copy(0, rows, _renormalize(kept))


def min_p_renorm_prob(
    probs: torch.Tensor, min_ps: torch.Tensor | float
) -> torch.Tensor:
    """Keep tokens at least min_p times as probable as the row's most probable one.

    Args:
        probs: [num_rows, vocab_size] float.
        min_ps: [num_rows] float, or one for all; 0 keeps everything.

    Returns:
        [num_rows, vocab_size], rows summing to 1.
    """
    threshold = probs.amax(-1, keepdim=True) * _per_row(min_ps, probs)[:, None]
    return _renormalize(torch.where(probs >= threshold, probs, 0))


def sample(weights: torch.Tensor, coins: torch.Tensor) -> torch.Tensor:
    """Invert each row's cumulative distribution at its coin.

    Args:
        weights: [num_rows, vocab_size] float, not negative, of any sum.
        coins: [num_rows] float in [0, 1).

    Returns:
        [num_rows] int64. A token of weight 0 is chosen only where all are 0, then the
        last one.
    """
    cumulative = weights.to(torch.float64).cumsum(-1)
    target = coins.to(torch.float64)[:, None] * cumulative[:, -1:]
    token = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    vocab_size = weights.shape[-1]
    position = torch.arange(vocab_size)
    last = torch.where(weights > 0, position, -1).amax(-1)
    last = torch.where(last < 0, vocab_size - 1, last)
    return torch.minimum(token, last)
