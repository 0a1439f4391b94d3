"""The gated delta rule: one step, a block of related tokens, a whole sequence.

A head's state S is [key_dim, value_dim]. Token t with query q, key k, value v, log
decay g and write strength beta does

    S <- exp(g) S;  S <- S + beta k (v - k S);  o = q S

(Gated Delta Networks, https://arxiv.org/abs/2412.06464, equation 10). All is float32,
queries and keys are normalized and queries scaled before they come here.
"""

from dataclasses import dataclass

import torch

CHUNK_SIZE = 64


@dataclass(frozen=True)
class Tokens:
    """Inputs of the rule, float32, tokens on dimension -2.

    Attributes:
        query: [..., num_heads, num_tokens, key_dim].
        key: [..., num_heads, num_tokens, key_dim].
        value: [..., num_heads, num_tokens, value_dim].
        decay: [..., num_heads, num_tokens], logarithms, at most 0.
        beta: [..., num_heads, num_tokens].
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    decay: torch.Tensor
    beta: torch.Tensor


def step(tokens: Tokens, state: torch.Tensor) -> torch.Tensor:
    """Advance `state` [..., key_dim, value_dim] by one token, in place.

    Returns:
        [..., num_heads, 1, value_dim].
    """
    state.mul_(tokens.decay.exp().unsqueeze(-1))
    update = (tokens.value - tokens.key @ state) * tokens.beta.unsqueeze(-1)
    state.addcmul_(tokens.key.transpose(-1, -2), update)
    return tokens.query @ state


@dataclass(frozen=True)
class _Solved:
    """A block with the dependence between its own tokens resolved.

    Attributes:
        reach: [..., num_tokens], decay from before the block to after each token.
        relative: [..., num_tokens, num_tokens], decay from each ancestor (column).
        scores: [..., num_tokens, num_tokens], query times key times `relative`.
        written: [..., num_tokens, value_dim], what each token writes were the state 0.
        read: [..., num_tokens, key_dim], what reads the state and is subtracted.
    """

    reach: torch.Tensor
    relative: torch.Tensor
    scores: torch.Tensor
    written: torch.Tensor
    read: torch.Tensor

    def updates(self, state: torch.Tensor) -> torch.Tensor:
        """[..., num_tokens, value_dim]: what each token adds along its key."""
        return self.written - self.read @ state

    def outputs(
        self, query: torch.Tensor, state: torch.Tensor, updates: torch.Tensor
    ) -> torch.Tensor:
        """[..., num_tokens, value_dim]: the tokens' outputs, from the state before."""
        return (query * self.reach.unsqueeze(-1)) @ state + self.scores @ updates


def _solve(tokens: Tokens, related: torch.Tensor) -> _Solved:
    """Resolve a block in the WY form (arXiv 2412.06464, section 3.3).

    Args:
        related: bool [..., num_tokens, num_tokens], whether the column's token is an
            ancestor of the row's token or itself; lower triangular.
    """
    total = (related * tokens.decay.unsqueeze(-2)).sum(-1)
    relative = total.unsqueeze(-1) - total.unsqueeze(-2)
    relative = relative.masked_fill(~related, float("-inf")).exp()
    reach = total.exp()
    beta_key = tokens.key * tokens.beta.unsqueeze(-1)
    dependence = (beta_key @ tokens.key.transpose(-1, -2)) * relative
    value_dim = tokens.value.shape[-1]
    right = torch.cat(
        (tokens.value * tokens.beta.unsqueeze(-1), beta_key * reach.unsqueeze(-1)),
        dim=-1,
    )
    # unitriangular: the diagonal counts as ones, so that `dependence` needs no masking.
    solution = torch.linalg.solve_triangular(
        dependence, right, upper=False, unitriangular=True
    )
    return _Solved(
        reach=reach,
        relative=relative,
        scores=(tokens.query @ tokens.key.transpose(-1, -2)) * relative,
        written=solution[..., :value_dim],
        read=solution[..., value_dim:],
    )


def block(
    tokens: Tokens, state: torch.Tensor, related: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs of a chain or tree of tokens, and the state after each of them.

    Args:
        state: [..., num_heads, key_dim, value_dim] before the block.
        related: bool, broadcast to [..., num_tokens, num_tokens]: whether the column's
            token is an ancestor of the row's token or itself; lower triangular.

    Returns:
        Outputs [..., num_heads, num_tokens, value_dim] and states
        [..., num_heads, num_tokens, key_dim, value_dim].
    """
    solved = _solve(tokens, related)
    updates = solved.updates(state)
    outputs = solved.outputs(tokens.query, state, updates)
    writes = tokens.key.unsqueeze(-1) * updates.unsqueeze(-2)
    states = (solved.relative @ writes.flatten(-2)).view(writes.shape)
    states += solved.reach[..., None, None] * state.unsqueeze(-3)
    return outputs, states


def sequence(
    tokens: Tokens, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run one sequence in chunks of 64 tokens.

    Args:
        tokens: of [num_heads, num_tokens, ...], at least one token.
        state: [num_heads, key_dim, value_dim] before the sequence.

    Returns:
        Outputs [num_heads, num_tokens, value_dim], the last state, and the state before
        each chunk [num_chunks, num_heads, key_dim, value_dim].
    """
    num_tokens = tokens.query.shape[-2]
    size = min(CHUNK_SIZE, num_tokens)
    num_chunks = -(-num_tokens // size)

    def chunked(x: torch.Tensor) -> torch.Tensor:
        """[num_chunks, num_heads, size, ...]; zeros as padding change nothing."""
        padding = num_chunks * size - num_tokens
        if padding:
            x = torch.cat((x, x.new_zeros(x.shape[0], padding, *x.shape[2:])), dim=1)
        return x.unflatten(1, (num_chunks, size)).transpose(0, 1)

    chunks = Tokens(
        query=chunked(tokens.query),
        key=chunked(tokens.key),
        value=chunked(tokens.value),
        decay=chunked(tokens.decay),
        beta=chunked(tokens.beta),
    )
    solved = _solve(chunks, torch.ones(size, size, dtype=torch.bool).tril_())
    last_decay = solved.reach[..., -1:, None]
    key_to_last = (chunks.key * solved.relative[..., -1, :, None]).transpose(-1, -2)
    read_query = chunks.query * solved.reach.unsqueeze(-1)
    outputs, states = [], []
    for i in range(num_chunks):
        states.append(state)
        updates = solved.written[i] - solved.read[i] @ state
        outputs.append(read_query[i] @ state + solved.scores[i] @ updates)
        state = state * last_decay[i] + key_to_last[i] @ updates
    out = torch.stack(outputs, dim=1).flatten(1, 2)[:, :num_tokens]
    return out, state, torch.stack(states)
