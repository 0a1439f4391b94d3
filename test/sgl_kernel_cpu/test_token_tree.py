import torch
from hypothesis import given
from hypothesis import strategies as st

from sgl_kernel_cpu.token_tree import ancestors_or_self, parent_tokens


def trees(num_nodes):
    """Parents of nodes 1 and up; a parent comes before its children."""
    return st.tuples(*(st.integers(0, node - 1) for node in range(1, num_nodes)))


batches = st.integers(1, 10).flatmap(
    lambda n: st.lists(trees(n), min_size=1, max_size=3)
)


def links(parents):
    """First child and next sibling of every node, siblings in ascending order."""
    num_nodes = len(parents) + 1
    child, sibling = [-1] * num_nodes, [-1] * num_nodes
    for node in range(num_nodes - 1, 0, -1):
        parent = parents[node - 1]
        sibling[node], child[parent] = child[parent], node
    return child, sibling


@given(batches)
def test_parents_are_found_from_child_and_sibling_links(batch):
    child, sibling = zip(*map(links, batch), strict=True)
    found = parent_tokens(torch.tensor(child), torch.tensor(sibling))
    assert found.tolist() == [[0, *parents] for parents in batch]


@given(batches)
def test_ancestors_are_all_nodes_on_the_way_to_the_root(batch):
    related = ancestors_or_self(torch.tensor([[0, *parents] for parents in batch]))
    for matrix, parents in zip(related.tolist(), batch, strict=True):
        for node, row in enumerate(matrix):
            path = {node}
            while node:
                node = parents[node - 1]
                path.add(node)
            assert {i for i, seen in enumerate(row) if seen} == path


def test_a_node_without_links_hangs_from_the_root():
    child = torch.tensor([[1, -1, -1]], dtype=torch.int32)
    sibling = torch.full((1, 3), -1, dtype=torch.int32)
    assert parent_tokens(child, sibling).tolist() == [[0, 0, 0]]
