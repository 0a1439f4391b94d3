"""Building draft token trees, and verifying them greedily."""

from enum import IntEnum

import torch

from .registry import kernel


class TreeMaskMode(IntEnum):
    """Layouts of a tree mask, as in `sglang.kernels.ops.speculative.spec_tree`."""

    FULL_MASK = 0  # rows of seq_len + draft_token_num
    QLEN_ONLY = 1  # rows of draft_token_num


@kernel(
    "build_tree_kernel_efficient_cpu(Tensor parent_list, Tensor selected_index, "
    "Tensor verified_seq_len, Tensor(a!) tree_mask, Tensor(b!) positions, "
    "Tensor(c!) retrive_index, Tensor(d!) retrive_next_token, "
    "Tensor(e!) retrive_next_sibling, int topk, int depth, int draft_token_num, "
    "int tree_mask_mode) -> ()"
)
def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    verified_seq_len: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Turn the selected draft candidates of every request into a tree.

    Node 0 is the last verified token; node i is candidate `selected_index[i - 1]`.
    Candidate c was drafted from entry `c // topk` of `parent_list`; entry 0 stands for
    node 0, any other entry holds its candidate's number.

    Args:
        parent_list: [batch, num_parents] int64.
        selected_index: [batch, draft_token_num - 1] int64, ascending.
        verified_seq_len: [batch] int, the position of node 0.
        tree_mask: bool, which node sees which, written: in QLEN_ONLY
            [batch * draft_token_num ** 2], in FULL_MASK rows of the request's
            seq_len + draft_token_num, of which the first seq_len are left alone.
        positions: [batch * draft_token_num] int64, written.
        retrive_index: [batch, draft_token_num] int64, rows of the flat batch, written.
        retrive_next_token: [batch, draft_token_num] int64, first child or -1, written.
        retrive_next_sibling: [batch, draft_token_num] int64, next child of the same
            parent or -1, written.
        depth: draft steps; the candidates' own depth says the same.
    """
    if tree_mask_mode not in tuple(TreeMaskMode):
        raise RuntimeError(f"tree_mask_mode {tree_mask_mode} needs a GPU.")
    seq_lens = verified_seq_len.tolist()
    batch, num_nodes = len(seq_lens), draft_token_num
    trees = [
        _Tree(parents, selected, topk)
        for parents, selected in zip(
            parent_list.tolist(), selected_index.tolist(), strict=True
        )
    ]
    shape = (batch, num_nodes)
    retrive_index.view(shape).copy_(torch.arange(batch * num_nodes).view(shape))
    retrive_next_token.view(shape).copy_(torch.tensor([t.child for t in trees]))
    retrive_next_sibling.view(shape).copy_(torch.tensor([t.sibling for t in trees]))
    depths = torch.tensor([t.depth for t in trees]) + verified_seq_len[:, None]
    positions.view(shape).copy_(depths)
    visible = torch.tensor([t.visible for t in trees])
    if tree_mask_mode == TreeMaskMode.QLEN_ONLY:
        tree_mask.view(-1)[: visible.numel()] = visible.flatten()
        return
    flat, offset = tree_mask.view(-1), 0
    for seq_len, rows in zip(seq_lens, visible, strict=True):
        size = num_nodes * (seq_len + num_nodes)
        block = flat[offset : offset + size].view(num_nodes, -1)
        block[:, seq_len:] = rows
        offset += size


class _Tree:
    """Links, depths and visibility of one request's nodes, as lists by node.

    A node whose parent was not selected belongs to no path: it has no links and sees
    itself and the root alone.
    """

    def __init__(self, parents: list[int], selected: list[int], topk: int) -> None:
        num_nodes = len(selected) + 1
        node_of_candidate = {candidate: i for i, candidate in enumerate(selected, 1)}
        self.child = [-1] * num_nodes
        self.sibling = [-1] * num_nodes
        self.depth = [0] * num_nodes
        self.visible = [[False] * num_nodes for _ in range(num_nodes)]
        self.visible[0][0] = True
        parent_of: list[int | None] = [None] * num_nodes
        for node, candidate in enumerate(selected, 1):
            entry = candidate // topk
            parent = 0 if entry == 0 else node_of_candidate.get(parents[entry])
            parent_of[node] = parent
            above = 0 if parent is None else parent
            self.depth[node] = self.depth[above] + 1
            self.visible[node] = self.visible[above].copy()
            self.visible[node][node] = True
        for node in range(num_nodes - 1, 0, -1):
            parent = parent_of[node]
            if parent is not None:
                self.sibling[node] = self.child[parent]
                self.child[parent] = node


@kernel(
    "verify_tree_greedy_cpu(Tensor(a!) predicts, Tensor(b!) accept_index, "
    "Tensor(c!) accept_token_num, Tensor candidates, Tensor retrive_index, "
    "Tensor retrive_next_token, Tensor retrive_next_sibling, Tensor target_predict) "
    "-> ()"
)
def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Follow the target's predictions down every request's tree.

    Args:
        predicts: [batch * num_nodes] int32, written at the accepted rows.
        accept_index: [batch, max_depth] int32, rows of accepted nodes, written from the
            left; the rest keeps its -1.
        accept_token_num: [batch] int32, accepted drafts, written.
        candidates: [batch, num_nodes] int64, tokens.
        retrive_index: [batch, num_nodes] int64, a node's row in the flat batch.
        retrive_next_token: [batch, num_nodes] int64, first child or -1.
        retrive_next_sibling: [batch, num_nodes] int64, next sibling or -1.
        target_predict: [batch, num_nodes] int64, the target's token after each node.
    """
    target = target_predict.flatten().tolist()
    max_depth = accept_index.shape[1]
    paths: list[list[int]] = []
    trees = zip(
        candidates.tolist(),
        retrive_index.tolist(),
        retrive_next_token.tolist(),
        retrive_next_sibling.tolist(),
        strict=True,
    )
    for tokens, rows, child, sibling in trees:
        path, node = [rows[0]], 0
        while len(path) < max_depth:
            node = child[node]
            while node != -1 and tokens[node] != target[path[-1]]:
                node = sibling[node]
            if node == -1:
                break
            path.append(rows[node])
        paths.append(path)
    write_accepted(accept_index, accept_token_num, paths)
    rows = [row for path in paths for row in path]
    accepted = torch.tensor([target[row] for row in rows], dtype=predicts.dtype)
    predicts[torch.tensor(rows, dtype=torch.int64)] = accepted


def write_accepted(
    accept_index: torch.Tensor, accept_token_num: torch.Tensor, paths: list[list[int]]
) -> None:
    """Store the accepted rows of every request and how many drafts they are.

    Args:
        accept_index: [batch, max_depth] int32, written from the left.
        accept_token_num: [batch] int32, written.
        paths: accepted rows of every request, the root's first.
    """
    for i, path in enumerate(paths):
        accept_index[i, : len(path)] = torch.tensor(path, dtype=accept_index.dtype)
    counts = [len(path) - 1 for path in paths]
    accept_token_num.copy_(torch.tensor(counts, dtype=accept_token_num.dtype))
