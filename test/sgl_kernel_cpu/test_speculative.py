import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgl_kernel_cpu import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu
from sgl_kernel_cpu.speculative import TreeMaskMode


def draft(batch, topk, num_steps, num_nodes):
    """Candidates of a draft loop with random scores, and who drafted each of them.

    Returns parent_list and selected_index as SGLang makes them, and every request's
    nodes as the paths of candidates that lead to them.
    """
    parent_list, selected_index, paths = [], [], []
    for _ in range(batch):
        score_of = {}
        path_of = {-1: ()}
        parents = [-1]
        frontier = [(-1, 1.0)]
        first = 0
        for step in range(num_steps):
            grown = []
            for rank, (candidate, score) in enumerate(frontier):
                for k in range(topk):
                    number = first + rank * topk + k
                    score_of[number] = score * torch.rand(()).item()
                    path_of[number] = (*path_of[candidate], number)
                    grown.append((number, score_of[number]))
            first += len(frontier) * topk
            frontier = sorted(grown, key=lambda pair: -pair[1])[:topk]
            if step < num_steps - 1:
                parents += [candidate for candidate, _ in frontier]
        best = sorted(score_of, key=lambda c: -score_of[c])[: num_nodes - 1]
        selected = sorted(best)
        parent_list.append(parents)
        selected_index.append(selected)
        paths.append([(), *(path_of[candidate] for candidate in selected)])
    return torch.tensor(parent_list), torch.tensor(selected_index), paths


def build(parent_list, selected_index, seq_lens, topk, num_nodes, mode):
    batch = len(seq_lens)
    size = batch * num_nodes**2
    if mode == TreeMaskMode.FULL_MASK:
        size += sum(seq_lens) * num_nodes
    mask = torch.ones(size, dtype=torch.bool)
    positions = torch.full((batch * num_nodes,), -7, dtype=torch.int64)
    index, child, sibling = torch.full((3, batch, num_nodes), -1, dtype=torch.int64)
    build_tree_kernel_efficient_cpu(
        parent_list,
        selected_index,
        torch.tensor(seq_lens),
        mask,
        positions,
        index,
        child,
        sibling,
        topk,
        parent_list.shape[1],
        num_nodes,
        mode,
    )
    return mask, positions.view(batch, num_nodes), index, child, sibling


shapes = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda shape: st.tuples(
        st.just(shape),
        st.integers(2, 1 + shape[1] + (shape[2] - 1) * shape[1] ** 2),
    )
)


@pytest.mark.parametrize("mode", list(TreeMaskMode))
@given(shapes)
def test_a_tree_is_the_prefixes_of_its_paths(mode, shapes):
    (batch, topk, num_steps), num_nodes = shapes
    seq_lens = torch.randint(0, 9, (batch,)).tolist()
    parent_list, selected_index, paths = draft(batch, topk, num_steps, num_nodes)
    mask, positions, index, child, sibling = build(
        parent_list, selected_index, seq_lens, topk, num_nodes, mode
    )
    assert index.flatten().tolist() == list(range(batch * num_nodes))
    offset = 0
    for b, nodes in enumerate(paths):
        assert positions[b].tolist() == [seq_lens[b] + len(path) for path in nodes]
        prefix = seq_lens[b] if mode == TreeMaskMode.FULL_MASK else 0
        width = prefix + num_nodes
        rows = mask[offset : offset + num_nodes * width].view(num_nodes, width)
        offset += num_nodes * width
        assert bool(rows[:, :prefix].all())
        for row, path in zip(rows[:, prefix:].tolist(), nodes, strict=True):
            seen = [path[: len(other)] == other for other in nodes]
            assert row == seen
        for node, path in enumerate(nodes):
            children = [i for i, p in enumerate(nodes) if p and p[:-1] == path]
            linked, next_child = [], child[b, node].item()
            while next_child != -1:
                linked.append(next_child)
                next_child = sibling[b, next_child].item()
            assert linked == children


def test_a_mask_in_bits_is_an_error_that_says_so():
    parent_list, selected_index, _ = draft(1, 1, 2, 3)
    with pytest.raises(RuntimeError, match="tree_mask_mode 2"):
        build(parent_list, selected_index, [3], 1, 3, 2)


def verify(candidates, tree, target, max_depth):
    _, _, index, child, sibling = tree
    batch, num_nodes = candidates.shape
    predicts = torch.full((batch * num_nodes,), -7, dtype=torch.int32)
    accept_index = torch.full((batch, max_depth), -1, dtype=torch.int32)
    accept_token_num = torch.full((batch,), -7, dtype=torch.int32)
    verify_tree_greedy_cpu(
        predicts=predicts,
        accept_index=accept_index,
        accept_token_num=accept_token_num,
        candidates=candidates,
        retrive_index=index,
        retrive_next_token=child,
        retrive_next_sibling=sibling,
        target_predict=target,
    )
    return predicts, accept_index, accept_token_num


@given(shapes)
def test_the_one_path_that_the_target_predicts_is_accepted(shapes):
    (batch, topk, num_steps), num_nodes = shapes
    parent_list, selected_index, paths = draft(batch, topk, num_steps, num_nodes)
    tree = build(
        parent_list,
        selected_index,
        [3] * batch,
        topk,
        num_nodes,
        TreeMaskMode.QLEN_ONLY,
    )
    candidates = torch.randint(0, 3, (batch, num_nodes))
    target = torch.randint(0, 3, (batch, num_nodes))
    predicts, accept_index, accept_token_num = verify(
        candidates, tree, target, num_steps + 1
    )
    expected_predicts = torch.full((batch * num_nodes,), -7, dtype=torch.int32)
    for b, nodes in enumerate(paths):
        path, node = [0], 0
        while True:
            matching = [
                i
                for i, p in enumerate(nodes)
                if p and p[:-1] == nodes[node] and candidates[b, i] == target[b, node]
            ]
            if not matching:
                break
            node = matching[0]
            path.append(node)
        rows = [b * num_nodes + i for i in path]
        for row, i in zip(rows, path, strict=True):
            expected_predicts[row] = target[b, i]
        padding = [-1] * (num_steps + 1 - len(rows))
        assert accept_index[b].tolist() == rows + padding
        assert accept_token_num[b].item() == len(path) - 1
    assert torch.equal(predicts, expected_predicts)


def test_acceptance_stops_at_the_depth_of_the_output():
    parent_list, selected_index, _ = draft(1, 1, 3, 4)
    tree = build(parent_list, selected_index, [0], 1, 4, TreeMaskMode.QLEN_ONLY)
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    _, accept_index, accept_token_num = verify(tokens, tree, tokens, 2)
    assert accept_index.tolist() == [[0, 1]]
    assert accept_token_num.tolist() == [1]
