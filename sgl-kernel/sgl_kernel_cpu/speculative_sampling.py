"""Verifying drafts against the target's distribution, by sampling."""

from dataclasses import dataclass

import torch

from .sampling import sample
from .speculative import write_accepted


@dataclass(frozen=True)
class _Accepted:
    """One request's accepted path.

    Attributes:
        rows: rows of the accepted nodes in the flat batch, the root's first.
        tokens: their tokens, without the root's.
        last: the last accepted node, whose distribution gives the final token.
    """

    rows: list[int]
    tokens: list[int]
    last: int


def _write(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    accepted: list[_Accepted],
    final_tokens: torch.Tensor,
) -> None:
    """Store accepted paths: every row predicts the next token of its path."""
    write_accepted(accept_index, accept_token_num, [path.rows for path in accepted])
    rows = [row for path in accepted for row in path.rows]
    tokens = [
        token
        for path, final in zip(accepted, final_tokens.tolist(), strict=True)
        for token in (*path.tokens, final)
    ]
    predicts[torch.tensor(rows, dtype=torch.int64)] = torch.tensor(
        tokens, dtype=predicts.dtype
    )


def tree_speculative_sampling_target_only(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    uniform_samples: torch.Tensor,
    uniform_samples_for_final_sampling: torch.Tensor,
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
) -> None:
    """Walk every request's tree so that the tokens follow the target's distribution.

    At each node one coin is held against the children's probabilities, added up in
    order: it chooses a child, or none, exactly as one draw from the target would. Where
    it chooses none, the final token comes from the target without the rejected
    children. With thresholds of 1 the result is the target's distribution; lower ones
    accept more and change it.

    Args:
        predicts: [batch * num_nodes] int32, written at the accepted rows.
        accept_index: [batch, max_depth] int32, rows of accepted nodes, written from the
            left.
        accept_token_num: [batch] int32, accepted drafts, written.
        candidates: [batch, num_nodes] int64, tokens.
        retrive_index: [batch, num_nodes] int64, a node's row in the flat batch.
        retrive_next_token: [batch, num_nodes] int64, first child or -1.
        retrive_next_sibling: [batch, num_nodes] int64, next sibling or -1.
        uniform_samples: [batch, num_nodes] float32 in [0, 1), the node's coin.
        uniform_samples_for_final_sampling: [batch] float32 in [0, 1).
        target_probs: [batch, num_nodes, vocab_size] float32.
        draft_probs: [batch, num_nodes, vocab_size] float32 zeros, written with the
            target's probability of rejected children.
        threshold_single: a child at least this probable is accepted outright.
        threshold_acc: what added-up probabilities are divided by.
        deterministic: the PyTorch form always is.
    """
    batch, num_nodes = candidates.shape
    # [batch, node, candidate]: every probability that the walk may ask for.
    of_candidate = target_probs.gather(
        2, candidates[:, None, :].expand(-1, num_nodes, -1)
    ).tolist()
    trees = zip(
        candidates.tolist(),
        retrive_index.tolist(),
        retrive_next_token.tolist(),
        retrive_next_sibling.tolist(),
        uniform_samples.tolist(),
        strict=True,
    )
    accepted = []
    for b, (tokens, rows, child, sibling, coins) in enumerate(trees):
        path, chosen, last = [rows[0]], [], 0
        while len(path) < accept_index.shape[1]:
            node, held = child[last], 0.0
            while node != -1:
                probability = of_candidate[b][last][node]
                held += probability
                below = coins[last] < held / threshold_acc
                if probability > 0 and (below or probability >= threshold_single):
                    break
                draft_probs[b, last, tokens[node]] = probability
                node = sibling[node]
            if node == -1:
                break
            path.append(rows[node])
            chosen.append(tokens[node])
            last = node
        accepted.append(_Accepted(path, chosen, last))

    request = torch.arange(batch)
    final_node = torch.tensor([path.last for path in accepted], dtype=torch.int64)
    # The last level of a tree has no children to have rejected.
    full = torch.tensor([len(p.rows) == accept_index.shape[1] for p in accepted])
    weights = target_probs[request, final_node]
    rejected = draft_probs[request, final_node].masked_fill(full[:, None], 0)
    final = sample(
        (weights - rejected).clamp_(min=0), uniform_samples_for_final_sampling
    )
    _write(predicts, accept_index, accept_token_num, accepted, final)


def chain_speculative_sampling(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    uniform_samples: torch.Tensor,
    uniform_samples_for_final_sampling: torch.Tensor,
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
    *,
    block_verification: bool = False,
) -> None:
    """Rejection sampling of a chain that was drawn from `draft_probs`.

    Token verification is that of https://arxiv.org/abs/2211.17192, block verification
    that of https://arxiv.org/abs/2403.10444. Arguments are those of
    `chain_speculative_sampling_triton`; the links, the thresholds and `deterministic`
    play no part.

    Args:
        predicts: [batch * num_nodes] int32, written at the accepted rows.
        accept_index: [batch, num_nodes] int32, rows of accepted nodes, written from the
            left.
        accept_token_num: [batch] int32, accepted drafts, written.
        candidates: [batch, num_nodes] int64, tokens, the verified one first.
        retrive_index: [batch, num_nodes] int64, a node's row in the flat batch.
        uniform_samples: [batch, num_nodes] float32 in [0, 1), a coin per draft.
        uniform_samples_for_final_sampling: [batch] float32 in [0, 1).
        target_probs: [batch, num_nodes, vocab_size] float32.
        draft_probs: [batch, at least num_nodes - 1, vocab_size] float32.
    """
    batch, num_nodes = candidates.shape
    num_drafts = num_nodes - 1
    drafts = candidates[:, 1:, None]
    target = target_probs[:, :num_drafts].gather(2, drafts).squeeze(-1).double()
    draft = draft_probs[:, :num_drafts].gather(2, drafts).squeeze(-1).double()
    # A draft that its own distribution gives no probability is rejected.
    was_drawn = (draft > 0) & (draft <= 1)
    ratio = torch.where(was_drawn, target / draft, 0.0)
    proposal = draft_probs[:, :num_drafts].double()
    proposal = torch.where((proposal >= 0) & (proposal <= 1), proposal, 0.0)
    coins = uniform_samples[:, :num_drafts].double()
    if block_verification:
        count, scale = _block_verification(ratio, target_probs, proposal, coins)
    else:
        count = (coins < ratio).to(torch.int64).cumprod(1).sum(1)
        scale = torch.ones(batch, dtype=torch.float64)

    request = torch.arange(batch)
    weights = target_probs[request, count].double()
    subtracted = torch.zeros_like(weights)
    partial = count < num_drafts
    subtracted[partial] = proposal[request[partial], count[partial]]
    weights = torch.where(partial[:, None], scale[:, None] * weights, weights)
    final = sample(
        (weights - subtracted).clamp_(min=0), uniform_samples_for_final_sampling
    )
    accepted = [
        _Accepted(rows[: n + 1], tokens[1 : n + 1], n)
        for n, rows, tokens in zip(
            count.tolist(), retrive_index.tolist(), candidates.tolist(), strict=True
        )
    ]
    _write(predicts, accept_index, accept_token_num, accepted, final)


def _block_verification(
    ratio: torch.Tensor,
    target_probs: torch.Tensor,
    proposal: torch.Tensor,
    coins: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Accepted drafts [batch], and the residual's factor of the target [batch].

    Algorithm 2 of https://arxiv.org/abs/2403.10444: the longest prefix whose own test
    passes is accepted.

    Args:
        ratio: [batch, num_drafts] float64, target over draft probability.
        target_probs: [batch, num_drafts + 1, vocab_size].
        proposal: [batch, num_drafts, vocab_size] float64.
        coins: [batch, num_drafts] float64.
    """
    batch, num_drafts = ratio.shape
    prefix = torch.ones(batch, dtype=torch.float64)
    count = torch.zeros(batch, dtype=torch.int64)
    scale = torch.ones(batch, dtype=torch.float64)
    for i in range(num_drafts):
        prefix = (prefix * ratio[:, i]).clamp(max=1.0)
        accept = prefix
        if i + 1 < num_drafts:
            following = prefix[:, None] * target_probs[:, i + 1].double()
            mass = (following - proposal[:, i + 1]).clamp(min=0).sum(-1)
            inside = (prefix > 0) & (prefix < 1)
            accept = torch.where(inside, mass / (mass + 1 - prefix), prefix)
        passed = coins[:, i] < accept
        count = torch.where(passed, i + 1, count)
        scale = torch.where(passed, prefix, scale)
    return count, scale
