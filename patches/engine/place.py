"""Names a place in an upstream file without quoting it.

A place is a scope (the qualified name of a class or function, empty for the module)
and, inside it, a node described by its kind and by the names it mentions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from patches.engine.patch import EditError
from patches.engine.walk import children_of, walk

Definition = cst.FunctionDef | cst.ClassDef


@dataclass(frozen=True)
class Find:
    """A node inside a scope.

    Attributes:
        kind: a key of ``KINDS``.
        name: what the node is called: the target of an assignment, the function of a
            call or of a call statement, the last name of a method call, the exception
            of a raise, the key of a keyword argument, the module of an import.
        mentions: names, attributes and string values that must all occur in the node,
            for a compound statement in its header alone.
        nth: which of several matches, from 0; only where nothing else tells them apart.
        of: how many matches there must be when ``nth`` is given.
        within: the one statement of the scope that holds the node, if the scope is
            too wide.
    """

    kind: str
    name: str | None = None
    mentions: tuple[str, ...] = ()
    nth: int | None = None
    of: int | None = None
    within: Find | None = None

    def __str__(self) -> str:
        words = [self.kind]
        if self.name:
            words.append(repr(self.name))
        if self.mentions:
            words.append("mentioning " + ", ".join(map(repr, self.mentions)))
        if self.nth is not None:
            words.append(f"number {self.nth} of {self.of}")
        if self.within is not None:
            words.append(f"within {self.within}")
        return " ".join(words)


def find_definition(module: cst.Module, qualified_name: str) -> Definition:
    """Return the class or function of that dotted name.

    Raises:
        EditError: there is none, or more than one.
    """
    scope: cst.CSTNode = module
    for part in qualified_name.split("."):
        found = [node for node in _definitions_in(scope) if node.name.value == part]
        if len(found) != 1:
            raise EditError(
                f"definition {qualified_name!r}: {part!r} is there "
                f"{len(found)} times, expected once"
            )
        scope = found[0]
    assert isinstance(scope, Definition)
    return scope


def find_node(module: cst.Module, scope: str, find: Find) -> cst.CSTNode:
    """Return the one node that ``find`` describes in ``scope``.

    Raises:
        EditError: the scope or the node is not there exactly once.
    """
    root = _root_of(module, scope, find)
    matches = find_all(root, find)
    place = f"{find} in {scope or 'the module'}"
    if find.nth is not None:
        if len(matches) != find.of:
            raise EditError(f"{place}: found {len(matches)} matches")
        return matches[find.nth]
    if len(matches) != 1:
        raise EditError(f"{place}: found {len(matches)} times, expected once")
    return matches[0]


def find_sites(
    module: cst.Module, scope: str, find: Find, sites: int
) -> list[cst.CSTNode]:
    """Return the ``sites`` nodes that ``find`` describes in ``scope``.

    Raises:
        EditError: the scope is not there once, or the nodes are more or fewer.
    """
    if sites == 1:
        return [find_node(module, scope, find)]
    matches = find_all(_root_of(module, scope, find), find)
    if len(matches) != sites:
        raise EditError(
            f"{find} in {scope or 'the module'}: found {len(matches)} times, "
            f"expected {sites}"
        )
    return matches


def find_all(root: cst.CSTNode, find: Find) -> list[cst.CSTNode]:
    """Return every node below ``root`` that ``find`` describes, in source order."""
    if find.kind not in KINDS:
        raise EditError(f"unknown kind {find.kind!r}; known: {', '.join(KINDS)}")
    is_kind = KINDS[find.kind]
    return [
        node
        for node in walk(root)
        if is_kind(node, find.name) and set(find.mentions) <= mentions_of(node)
    ]


def mentions_of(node: cst.CSTNode) -> set[str]:
    """Return the names, attributes and string values in a node or in its header."""
    if isinstance(node, cst.If | cst.While):
        node = node.test
    elif isinstance(node, cst.For):
        node = node.iter
    elif isinstance(node, cst.With):
        return set().union(*(mentions_of(item) for item in node.items))
    elif isinstance(node, Definition):
        return {node.name.value}
    found = set()
    for child in walk(node):
        if isinstance(child, cst.Name):
            found.add(child.value)
        elif isinstance(child, cst.SimpleString):
            found.add(str(child.evaluated_value))
    return found


def dotted_name(node: cst.CSTNode | None) -> str:
    """Return ``a.b.c`` for names and attributes, an empty string for the rest."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        prefix = dotted_name(node.value)
        return f"{prefix}.{node.attr.value}" if prefix else ""
    return ""


def _root_of(module: cst.Module, scope: str, find: Find) -> cst.CSTNode:
    if find.within is not None:
        return find_node(module, scope, find.within)
    return find_definition(module, scope) if scope else module


def _definitions_in(scope: cst.CSTNode) -> Iterator[Definition]:
    """Yield definitions of a scope: also under its ifs, not inside nested scopes."""
    for child in children_of(scope):
        if isinstance(child, Definition):
            yield child
        else:
            yield from _definitions_in(child)


def _is_small_statement(node: cst.CSTNode, kind: type[cst.BaseSmallStatement]) -> bool:
    return (
        isinstance(node, cst.SimpleStatementLine)
        and len(node.body) == 1
        and isinstance(node.body[0], kind)
    )


def _is_assign(node: cst.CSTNode, name: str | None) -> bool:
    if not isinstance(node, cst.SimpleStatementLine) or len(node.body) != 1:
        return False
    statement = node.body[0]
    if isinstance(statement, cst.Assign):
        targets = [target.target for target in statement.targets]
    elif isinstance(statement, cst.AnnAssign | cst.AugAssign):
        targets = [statement.target]
    else:
        return False
    return name is None or name in map(dotted_name, targets)


def _is_call_statement(node: cst.CSTNode, name: str | None) -> bool:
    if not _is_small_statement(node, cst.Expr):
        return False
    assert isinstance(node, cst.SimpleStatementLine)
    expression = node.body[0]
    assert isinstance(expression, cst.Expr)
    return _is_call(expression.value, name)


def _is_call(node: cst.CSTNode, name: str | None) -> bool:
    return isinstance(node, cst.Call) and name in (None, dotted_name(node.func))


def _is_method_call(node: cst.CSTNode, name: str | None) -> bool:
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and name in (None, node.func.attr.value)
    )


def _is_raise(node: cst.CSTNode, name: str | None) -> bool:
    if not _is_small_statement(node, cst.Raise):
        return False
    assert isinstance(node, cst.SimpleStatementLine)
    statement = node.body[0]
    assert isinstance(statement, cst.Raise)
    raised = statement.exc
    called = raised.func if isinstance(raised, cst.Call) else raised
    return name in (None, dotted_name(called))


def _is_import(node: cst.CSTNode, name: str | None) -> bool:
    if _is_small_statement(node, cst.ImportFrom):
        return name is None or name == dotted_name(node.body[0].module)  # type: ignore
    if _is_small_statement(node, cst.Import):
        return name is None or name in [
            dotted_name(alias.name)
            for alias in node.body[0].names  # type: ignore
        ]
    return False


def _is_keyword(node: cst.CSTNode, name: str | None) -> bool:
    return (
        isinstance(node, cst.Arg)
        and node.keyword is not None
        and name in (None, node.keyword.value)
    )


def _of_type(*types: type[cst.CSTNode]) -> Callable[[cst.CSTNode, str | None], bool]:
    return lambda node, name: isinstance(node, types)


KINDS: dict[str, Callable[[cst.CSTNode, str | None], bool]] = {
    "assign": _is_assign,
    "call": _is_call,
    "call statement": _is_call_statement,
    "method call": _is_method_call,
    "raise": _is_raise,
    "import": _is_import,
    "keyword": _is_keyword,
    "return": lambda node, name: _is_small_statement(node, cst.Return),
    "assert": lambda node, name: _is_small_statement(node, cst.Assert),
    "if": _of_type(cst.If),
    "for": _of_type(cst.For),
    "while": _of_type(cst.While),
    "with": _of_type(cst.With),
    "try": _of_type(cst.Try),
    "compare": _of_type(cst.Comparison),
    "boolean": _of_type(cst.BooleanOperation),
    "not": lambda node, name: m.matches(node, m.UnaryOperation(operator=m.Not())),
    "lambda": _of_type(cst.Lambda),
    "name": lambda node, name: isinstance(node, cst.Name) and node.value == name,
    "attribute": lambda node, name: (
        isinstance(node, cst.Attribute) and dotted_name(node) == name
    ),
    "string": lambda node, name: (
        isinstance(node, cst.SimpleString) and node.evaluated_value == name
    ),
    "conditional": _of_type(cst.IfExp),
    "collection": _of_type(cst.Tuple, cst.List, cst.Set, cst.Dict),
}
