"""Linear attention of Qwen3.5: gates, prefill, decode and verify over a state pool."""

from itertools import pairwise

import torch
import torch.nn.functional as F

from . import delta_rule
from .delta_rule import Tokens
from .registry import kernel
from .state_slots import StateSlots
from .token_tree import ancestors_or_self

_L2_NORM_EPS = 1e-6


def _split_shapes(
    mixed_qkvz: torch.Tensor,
    mixed_ba: torch.Tensor,
    num_heads_qk: int,
    num_heads_v: int,
    head_qk: int,
    head_v: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    num_tokens = mixed_qkvz.shape[0]
    qkv_dim = 2 * num_heads_qk * head_qk + num_heads_v * head_v
    return (
        mixed_qkvz.new_empty((num_tokens, qkv_dim)),
        mixed_qkvz.new_empty((num_tokens, num_heads_v, head_v)),
        mixed_ba.new_empty((num_tokens, num_heads_v)),
        mixed_ba.new_empty((num_tokens, num_heads_v)),
    )


@kernel(
    "fused_qkvzba_split_reshape_cat_contiguous_cpu(Tensor mixed_qkvz, "
    "Tensor mixed_ba, int num_heads_qk, int num_heads_v, int head_qk, int head_v) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    fake=_split_shapes,
)
def fused_qkvzba_split_reshape_cat_contiguous_cpu(
    mixed_qkvz: torch.Tensor,
    mixed_ba: torch.Tensor,
    num_heads_qk: int,
    num_heads_v: int,
    head_qk: int,
    head_v: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split the projections into qkv, z, b and a, all contiguous.

    Args:
        mixed_qkvz: [num_tokens, q | k | v | z].
        mixed_ba: [num_tokens, b | a].

    Returns:
        [num_tokens, q | k | v], z [num_tokens, num_heads_v, head_v], b and a
        [num_tokens, num_heads_v].
    """
    z_dim = num_heads_v * head_v
    qkv, z = mixed_qkvz.split((mixed_qkvz.shape[1] - z_dim, z_dim), dim=-1)
    b, a = mixed_ba.split(num_heads_v, dim=-1)
    z = z.reshape(-1, num_heads_v, head_v).contiguous()
    return _copy(qkv), _copy(z), _copy(b), _copy(a)


def _copy(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _gates(
    A_log: torch.Tensor,
    a: torch.Tensor,
    dt_bias: torch.Tensor,
    softplus_beta: float = 1.0,
    softplus_threshold: float = 20.0,
) -> torch.Tensor:
    """Log decay of every token and head, float32 shaped like a."""
    shifted = a.float() + dt_bias.float()
    return F.softplus(shifted, softplus_beta, softplus_threshold) * -A_log.float().exp()


def _fake_gating(
    A_log: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dt_bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return a.new_empty((1, *a.shape), dtype=torch.float32), b.new_empty((1, *b.shape))


@kernel(
    "fused_gdn_gating_cpu(Tensor A_log, Tensor a, Tensor b, Tensor dt_bias) "
    "-> (Tensor, Tensor)",
    fake=_fake_gating,
)
def fused_gdn_gating_cpu(
    A_log: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dt_bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log decay -exp(A_log) softplus(a + dt_bias) and write strength sigmoid(b).

    Args:
        A_log: [num_heads].
        a: [num_tokens, num_heads].
        b: [num_tokens, num_heads].
        dt_bias: [num_heads].

    Returns:
        [1, num_tokens, num_heads] float32, and likewise in b's dtype.
    """
    return _gates(A_log, a, dt_bias).unsqueeze(0), b.sigmoid().unsqueeze(0)


def _l2_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps)


def _repeat_heads(x: torch.Tensor, group: int) -> torch.Tensor:
    """[..., heads * group, dim] of [..., heads, dim], each head `group` times."""
    repeated = x.unsqueeze(-2).expand(*x.shape[:-1], group, x.shape[-1])
    return repeated.flatten(-3, -2)


def _tokens(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    l2_norm_eps: float | None,
) -> Tokens:
    """Inputs of the rule from [..., num_tokens, heads, dim] activations of any dtype.

    Key heads are repeated for the value heads that share them.
    """
    q, k = q.float(), k.float()
    if l2_norm_eps is not None:
        q, k = _l2_norm(q, l2_norm_eps), _l2_norm(k, l2_norm_eps)
    q = q * q.shape[-1] ** -0.5
    group = v.shape[-2] // q.shape[-2]
    if group > 1:
        q, k = _repeat_heads(q, group), _repeat_heads(k, group)
    return Tokens(
        query=q.transpose(-2, -3),
        key=k.transpose(-2, -3),
        value=v.float().transpose(-2, -3),
        decay=decay.float().transpose(-1, -2),
        beta=beta.float().transpose(-1, -2),
    )


def _key_major(pool: torch.Tensor, key_dim: int, value_dim: int) -> torch.Tensor:
    """The pool as [..., key_dim, value_dim].

    SGLang names a state's dimensions [value_dim, key_dim] while its compiled kernel
    stores key rows. Where the two differ in size the shape tells; where they do not,
    the compiled kernel's order is kept.
    """
    if pool.shape[-2:] == (key_dim, value_dim):
        return pool
    return pool.transpose(-1, -2)


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
    eps: float = _L2_NORM_EPS,
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
        pool: [num_slots, num_heads, value_dim, key_dim], written; see `_key_major`.
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
    states = _key_major(pool, key_dim, value_dim)
    output = torch.zeros_like(value, memory_format=torch.contiguous_format)
    before_chunk = []
    for (start, end), slot in zip(pairwise(bounds), slot_list, strict=False):
        if start == end:
            continue
        part = slice(start, end)
        tokens = _tokens(
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
    return output, _key_major(joined, *pool.shape[-2:])


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
            `_key_major`. Written unless `disable_state_update`.
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
    decay = _gates(A_log, a, dt_bias, softplus_beta, softplus_threshold)
    tokens = _tokens(
        by_request(q),
        by_request(k),
        by_request(v),
        decay.view(batch, num_tokens, heads),
        b.float().sigmoid().view(batch, num_tokens, heads),
        _L2_NORM_EPS if use_qk_l2norm_in_kernel else None,
    )
    pool = _key_major(initial_state_source, q.shape[-1], v.shape[-1])
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
            buffer = _key_major(intermediate_states_buffer, q.shape[-1], v.shape[-1])
            rows = intermediate_state_indices[:batch]
            slots.write_rows(buffer[:, :num_tokens], rows, each.transpose(1, 2))
    if not disable_state_update:
        slots.write(pool, state)
    out = slots.blank_padding(out)
    return out.transpose(1, 2).reshape(_update_shape(v, batch)).to(v.dtype)
