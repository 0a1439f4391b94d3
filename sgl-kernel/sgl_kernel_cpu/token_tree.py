"""Relations between the nodes of draft token trees; parents come before children."""

import torch


def parent_tokens(
    retrieve_next_token: torch.Tensor, retrieve_next_sibling: torch.Tensor
) -> torch.Tensor:
    """Parent of every node, [batch, num_tokens] int64; 0 for the root.

    Args:
        retrieve_next_token: [batch, num_tokens] int, a node's first child or -1.
        retrieve_next_sibling: [batch, num_tokens] int, a node's next sibling or -1.
    """
    batch, num_tokens = retrieve_next_token.shape
    node = torch.arange(num_tokens).repeat(batch, 1)
    # Links to -1 are written into one more column, which is dropped.
    wide = (batch, num_tokens + 1)
    parent = torch.zeros(wide, dtype=torch.int64)
    parent.scatter_(1, _links(retrieve_next_token), node)
    elder = torch.arange(num_tokens + 1).repeat(batch, 1)
    elder.scatter_(1, _links(retrieve_next_sibling), node)
    parent, elder = parent[:, :-1], elder[:, :-1]
    # Follow elder siblings to the first child, doubling the distance every time.
    for _ in range((num_tokens - 1).bit_length()):
        elder = elder.gather(1, elder)
    return parent.gather(1, elder)


def _links(target: torch.Tensor) -> torch.Tensor:
    return torch.where(target < 0, target.shape[1], target).to(torch.int64)


def ancestors_or_self(parents: torch.Tensor) -> torch.Tensor:
    """bool [batch, num_tokens, num_tokens]: whether column is row's ancestor or row.

    Args:
        parents: [batch, num_tokens] int, each less than its own column; the root's own
            entry is ignored.
    """
    batch, num_tokens = parents.shape
    step = torch.zeros(batch, num_tokens, num_tokens)
    step[:, 1:].scatter_(2, parents[:, 1:, None].to(torch.int64), 1.0)
    reached = torch.eye(num_tokens).expand(batch, -1, -1)
    for _ in range((num_tokens - 1).bit_length()):
        reached = reached + step @ reached
        step = step @ step
    return reached > 0
