"""Replaces nodes of a LibCST tree, found by identity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import libcst as cst

from patches.engine.walk import ancestors_of

Replacement = Sequence[cst.CSTNode]


class _Replacer(cst.CSTTransformer):
    def __init__(self, module: cst.Module, replacements: dict[int, Replacement]):
        super().__init__()
        self.replacements = replacements
        self.above = ancestors_of(module, set(replacements)) - set(replacements)

    def on_visit(self, node: cst.CSTNode) -> bool:
        return id(node) in self.above

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Any:
        replacement = self.replacements.get(id(original_node))
        if replacement is None:
            return updated_node
        if not replacement:
            return cst.RemoveFromParent()
        if len(replacement) == 1:
            return replacement[0]
        return cst.FlattenSentinel(replacement)


def replace_nodes(
    module: cst.Module, pairs: Iterable[tuple[cst.CSTNode, Replacement]]
) -> cst.Module:
    """Return the module with each target replaced by none, one or several nodes.

    A target may be among its own replacements; no target may be inside another one.
    """
    replacements = {id(target): nodes for target, nodes in pairs}
    new = module.visit(_Replacer(module, replacements))
    assert isinstance(new, cst.Module)
    return new


def replace_node(
    module: cst.Module, target: cst.CSTNode, replacement: Replacement
) -> cst.Module:
    """``replace_nodes`` for a single target."""
    return replace_nodes(module, [(target, replacement)])
