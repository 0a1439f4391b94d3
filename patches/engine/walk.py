"""Walks a LibCST tree without rebuilding it.

``CSTNode.children`` makes a new copy of the node at every call. A build looks for some
two hundred places in files of up to ten thousand lines, so this reads fields instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache

import libcst as cst

_LAYOUT = ("whitespace", "leading_lines", "lines_after", "trailing", "header", "footer")


def children_of(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Return the nodes directly below ``node``, field by field, without its layout."""
    found: list[cst.CSTNode] = []
    for name in _field_names(type(node)):
        value = getattr(node, name)
        if isinstance(value, list | tuple):
            found += [item for item in value if _is_node(item.__class__)]
        elif _is_node(value.__class__):
            found.append(value)
    return found


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield ``node`` and everything below it; statements come in source order."""
    yield node
    for child in children_of(node):
        yield from walk(child)


def ancestors_of(root: cst.CSTNode, targets: set[int]) -> set[int]:
    """Return the identities of the nodes from ``root`` down to ``targets``.

    Args:
        targets: identities; none is inside another. They are in the result.
    """
    found: set[int] = set()
    missing = set(targets)

    def reaches(node: cst.CSTNode) -> bool:
        if id(node) in missing:
            missing.remove(id(node))
            found.add(id(node))
            return True
        reached = False
        for child in children_of(node):
            if not missing:
                break
            reached = reaches(child) or reached
        if reached:
            found.add(id(node))
        return reached

    reaches(root)
    return found


@cache
def _is_node(kind: type) -> bool:
    return issubclass(kind, cst.CSTNode)


@cache
def _field_names(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    return tuple(
        field.name
        for field in dataclasses.fields(kind)
        if not field.name.startswith(_LAYOUT)
    )
