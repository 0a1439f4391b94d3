"""Prompts through a gated delta net layer, chunk by chunk over a state pool."""

from itertools import pairwise

import torch

from . import delta_rule
from .gated_delta_net_inputs import L2_NORM_EPS, key_major, rule_tokens
from .registry import kernel


def _fake_chunk(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor,
    *args: object,
    **kwargs: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    output = torch.empty_like(value, memory_format=torch.contiguous_format)
    return output, torch.empty_like(initial_state, dtype=torch.float32)


@kernel(
    "chunk_gated_delta_rule_cpu(Tensor query, Tensor key, Tensor value, Tensor g, "
    "Tensor beta, Tensor(a!) initial_state, bool output_final_state, "
    "Tensor cu_seqlens, bool head_first, bool use_qk_l2norm_in_kernel, "
    "Tensor? initial_state_indices=None, float eps=1e-6) -> (Tensor, Tensor)",
    fake=_fake_chunk,
)
def chunk_gated_delta_rule_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor,
    output_final_state: bool,
    cu_seqlens: torch.Tensor,
    head_first: bool,
    use_qk_l2norm_in_kernel: bool,
    initial_state_indices: torch.Tensor | None = None,
    eps: float = L2_NORM_EPS,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`prefill`, and a copy of the pool after it in float32."""
    assert not head_first, "head-first activations are not supported"
    output, _ = prefill(
        query,
        key,
        value,
        g,
        beta,
        initial_state,
        cu_seqlens,
        initial_state_indices,
        eps if use_qk_l2norm_in_kernel else None,
    )
    return output, initial_state.to(torch.float32, copy=True)


def prefill(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    pool: torch.Tensor,
    cu_seqlens: torch.Tensor,
    slots: torch.Tensor | None,
    l2_norm_eps: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run packed sequences from their slots' states, and leave the last states there.

    Args:
        query: [1, num_tokens, num_key_heads, key_dim].
        key: [1, num_tokens, num_key_heads, key_dim].
        value: [1, num_tokens, num_heads, value_dim].
        g: [1, num_tokens, num_heads], log decay.
        beta: [1, num_tokens, num_heads].
        pool: [num_slots, num_heads, value_dim, key_dim], written; see `key_major`.
        cu_seqlens: [batch + 1] int, sequence boundaries.
        slots: [batch] int, the sequence's own number by default; a sequence of slot -1
            starts from zeros and its state is dropped.
        l2_norm_eps: epsilon of the norm of queries and keys, None for no norm.

    Returns:
        [1, num_tokens, num_heads, value_dim] in value's dtype, and the states before
        each chunk of 64 tokens of each sequence, [1, num_chunks, *state] float32.
    """
    bounds = cu_seqlens.tolist()
    slot_list = list(range(len(bounds) - 1)) if slots is None else slots.tolist()
    num_heads, value_dim = value.shape[2:]
    key_dim = query.shape[-1]
    states = key_major(pool, key_dim, value_dim)
    output = torch.zeros_like(value, memory_format=torch.contiguous_format)
    before_chunk = []
    for (start, end), slot in zip(pairwise(bounds), slot_list, strict=False):
        if start == end:
            continue
        part = slice(start, end)
        tokens = rule_tokens(
            query[0, part],
            key[0, part],
            value[0, part],
            g[0, part],
            beta[0, part],
            l2_norm_eps,
        )
        if slot < 0:
            state = torch.zeros(num_heads, key_dim, value_dim)
        else:
            state = states[slot].float()
        out, last, before = delta_rule.sequence(tokens, state)
        output[0, part] = out.transpose(0, 1)
        if slot >= 0:
            states[slot].copy_(last)
        before_chunk.append(before)
    if not before_chunk:
        return output, pool.new_empty((1, 0, *pool.shape[1:]), dtype=torch.float32)
    joined = torch.cat(before_chunk).unsqueeze(0)
    return output, key_major(joined, *pool.shape[-2:])
