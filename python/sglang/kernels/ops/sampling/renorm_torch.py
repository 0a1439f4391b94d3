"""Top-k, top-p and min-p filters on probabilities in plain PyTorch."""

import torch


def top_k_top_p_renorm_probs_torch(
    probs: torch.Tensor,
    top_ks: torch.Tensor,
    top_ps: torch.Tensor,
) -> torch.Tensor:
    """Filter each row as ``top_k_top_p_min_p_sampling_from_probs_torch`` does.

    Both filters look at the unfiltered probabilities, so that a token drawn from the
    result has the distribution of one drawn by the PyTorch sampling backend.

    Args:
        probs: float32 [num_rows, vocab_size], rows sum to one.
        top_ks: int [num_rows].
        top_ps: float32 [num_rows].

    Returns:
        float32 [num_rows, vocab_size], rows sum to one.
    """
    probs_sort, probs_idx = probs.sort(dim=-1, descending=True)
    mass_before = probs_sort.cumsum(dim=-1) - probs_sort
    ranks = torch.arange(probs.shape[-1], device=probs.device)
    dropped = (ranks >= top_ks.view(-1, 1)) | (mass_before > top_ps.view(-1, 1))
    kept = torch.zeros_like(probs).scatter_(
        -1, probs_idx, probs_sort.masked_fill_(dropped, 0.0)
    )
    return kept.div_(kept.sum(dim=-1, keepdim=True))


def min_p_renorm_probs_torch(probs: torch.Tensor, min_ps: torch.Tensor) -> torch.Tensor:
    """Drop what is less likely than ``min_ps`` times the row's most likely token.

    Args:
        probs: float32 [num_rows, vocab_size], rows sum to one.
        min_ps: float32 [num_rows].

    Returns:
        float32 [num_rows, vocab_size], rows sum to one.
    """
    thresholds = probs.amax(dim=-1, keepdim=True) * min_ps.view(-1, 1)
    kept = probs.masked_fill(probs < thresholds, 0.0)
    return kept.div_(kept.sum(dim=-1, keepdim=True))
