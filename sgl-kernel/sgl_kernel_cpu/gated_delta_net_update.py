"""Decode and verify steps of a gated delta net layer over a state pool."""

import torch

from . import delta_rule
from .gated_delta_net_inputs import L2_NORM_EPS, key_major, log_decay, rule_tokens
from .registry import kernel
from .state_slots import StateSlots
from .token_tree import ancestors_or_self


def _fake_update(
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    initial_state_source: torch.Tensor,
    initial_state_indices: torch.Tensor,
    cu_seqlens: torch.Tensor,
    *args: object,
    **kwargs: object,
) -> torch.Tensor:
    return v.new_empty(_update_shape(v, cu_seqlens.numel() - 1))


def _update_shape(v: torch.Tensor, batch: int) -> tuple[int, ...]:
    """Decode puts the requests first, verify the one dimension of packed sequences."""
    one, num_tokens, num_heads, value_dim = v.shape
    leading = (num_tokens, one) if num_tokens == batch else (one, num_tokens)
    return (*leading, num_heads, value_dim)


@kernel(
    "fused_sigmoid_gating_delta_rule_update_cpu(Tensor A_log, Tensor dt_bias, "
    "Tensor q, Tensor k, Tensor v, Tensor a, Tensor b, "
    "Tensor(a!) initial_state_source, Tensor initial_state_indices, "
    "Tensor cu_seqlens, bool use_qk_l2norm_in_kernel, float softplus_beta=1.0, "
    "float softplus_threshold=20.0, bool is_kda=False, "
    "bool disable_state_update=False, "
    "Tensor(b!)? intermediate_states_buffer=None, "
    "Tensor? intermediate_state_indices=None, int? cache_steps=None, "
    "Tensor? retrieve_parent_token=None) -> Tensor",
    fake=_fake_update,
)
def fused_sigmoid_gating_delta_rule_update_cpu(
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    initial_state_source: torch.Tensor,
    initial_state_indices: torch.Tensor,
    cu_seqlens: torch.Tensor,
    use_qk_l2norm_in_kernel: bool,
    softplus_beta: float = 1.0,
    softplus_threshold: float = 20.0,
    is_kda: bool = False,
    disable_state_update: bool = False,
    intermediate_states_buffer: torch.Tensor | None = None,
    intermediate_state_indices: torch.Tensor | None = None,
    cache_steps: int | None = None,
    retrieve_parent_token: torch.Tensor | None = None,
) -> torch.Tensor:
    """Gate and run the same number of tokens for every request: decode or verify.

    Args:
        A_log: [num_heads].
        dt_bias: [num_heads].
        q: [1, num_tokens, num_key_heads, key_dim], requests one after the other.
        k: [1, num_tokens, num_key_heads, key_dim].
        v: [1, num_tokens, num_heads, value_dim].
        a: [num_tokens, num_heads].
        b: [num_tokens, num_heads].
        initial_state_source: [num_slots, num_heads, value_dim, key_dim], the pool; see
            `key_major`. Written unless `disable_state_update`.
        initial_state_indices: [batch] int, slots, -1 for a padding request.
        cu_seqlens: [batch + 1] int, request boundaries, evenly spaced.
        disable_state_update: leave the pool alone, as verification does.
        intermediate_states_buffer: [num_buffers, max_tokens, *state], the state after
            each token, written.
        intermediate_state_indices: [batch] int, rows of that buffer.
        cache_steps: tokens per request that the buffer holds; its shape says the same.
        retrieve_parent_token: [batch, tokens] int, parent of each token in a tree. A
            tree's last state is no one's, so it goes with `disable_state_update`.

    Returns:
        In v's dtype, 0 for padding requests: [num_tokens, 1, num_heads, value_dim] for
        one token per request, [1, num_tokens, num_heads, value_dim] for more.
    """
    assert not is_kda, "only the gated delta rule is supported, not Kimi's variant"
    batch = cu_seqlens.numel() - 1
    num_tokens = v.shape[1] // max(batch, 1)
    if batch * num_tokens != v.shape[1]:
        raise ValueError(
            f"{v.shape[1]} tokens do not divide evenly among {batch} requests."
        )
    if v.shape[1] == 0:
        return v.new_empty(_update_shape(v, batch))

    def by_request(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(batch, num_tokens, *x.shape[-2:])

    heads = v.shape[2]
    decay = log_decay(A_log, a, dt_bias, softplus_beta, softplus_threshold)
    tokens = rule_tokens(
        by_request(q),
        by_request(k),
        by_request(v),
        decay.view(batch, num_tokens, heads),
        b.float().sigmoid().view(batch, num_tokens, heads),
        L2_NORM_EPS if use_qk_l2norm_in_kernel else None,
    )
    pool = key_major(initial_state_source, q.shape[-1], v.shape[-1])
    slots = StateSlots.of(initial_state_indices[:batch])
    state = slots.read(pool).float()
    if num_tokens == 1 and intermediate_states_buffer is None:
        out = delta_rule.step(tokens, state)
    else:
        if retrieve_parent_token is None:
            related = torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril_()
        else:
            related = ancestors_or_self(retrieve_parent_token[:batch]).unsqueeze(1)
        out, each = delta_rule.block(tokens, state, related)
        state = each[..., -1, :, :]
        if intermediate_states_buffer is not None:
            assert intermediate_state_indices is not None
            buffer = key_major(intermediate_states_buffer, q.shape[-1], v.shape[-1])
            rows = intermediate_state_indices[:batch]
            slots.write_rows(buffer[:, :num_tokens], rows, each.transpose(1, 2))
    if not disable_state_update:
        slots.write(pool, state)
    out = slots.blank_padding(out)
    return out.transpose(1, 2).reshape(_update_shape(v, batch)).to(v.dtype)
