"""Tells whether a file has what an edit would bring: upstream may have done the same.

The answer goes by syntax, so it is yes only where upstream wrote the same code. An edit
whose new code holds the old one (``__original__``) leaves no such trace, and is judged
by the rest of its patch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from contextlib import suppress
from functools import singledispatch
from textwrap import dedent

import libcst as cst

from patches.engine.edits import (
    ORIGINAL,
    RECEIVER,
    AddArgument,
    AddImport,
    AdmitMember,
    ExtendCollection,
    Insert,
    RemoveArgument,
    ReplaceBody,
    ReplaceExpression,
    ReplaceStatement,
    expression_of,
    value_of,
)
from patches.engine.patch import Edit, EditError
from patches.engine.place import find_definition, find_node, find_sites
from patches.engine.walk import walk


@singledispatch
def is_present(edit: Edit, module: cst.Module) -> bool:
    """Whether ``module`` has all that ``edit`` would bring."""
    raise NotImplementedError(type(edit).__name__)


@is_present.register
def _(edit: Insert, module: cst.Module) -> bool:
    return _has_statements(module, edit.scope, edit.code)


@is_present.register
def _(edit: ReplaceStatement, module: cst.Module) -> bool:
    return bool(edit.code.strip()) and _has_statements(module, edit.scope, edit.code)


@is_present.register
def _(edit: ReplaceBody, module: cst.Module) -> bool:
    return _has_statements(module, edit.function, edit.code)


@is_present.register
def _(edit: ReplaceExpression, module: cst.Module) -> bool:
    if ORIGINAL in edit.code or RECEIVER in edit.code:
        return False
    wanted = _expression(edit.code)
    with suppress(EditError):
        places = find_sites(module, edit.scope, edit.at, edit.sites)
        return all(_dump_of(module, expression_of(place)) == wanted for place in places)
    found = [node for node in _nodes(module, edit.scope) if _dump(node) == wanted]
    return len(found) >= edit.sites


@is_present.register
def _(edit: ExtendCollection, module: cst.Module) -> bool:
    brackets = "{}" if _is_mapping(edit.code) else "[]"
    literal = ast.parse(f"{brackets[0]}{edit.code}{brackets[1]}", mode="eval").body
    nodes = _nodes(module, edit.scope)
    with suppress(EditError):
        place = expression_of(find_node(module, edit.scope, edit.at))
        nodes = [_parsed(module, place)]
    return any(
        _elements(literal) <= _elements(node)
        for node in nodes
        if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict)
    )


@is_present.register
def _(edit: AddArgument, module: cst.Module) -> bool:
    if isinstance(edit.at, str):
        function = _definition(module, edit.scope, edit.at)
        name = edit.code.split("=")[0].split(":")[0].strip()
        return name in _parameters(function)
    wanted = {_dump(k) for k in _call(f"f({edit.code})").keywords}
    calls = (n for n in _nodes(module, edit.scope) if isinstance(n, ast.Call))
    return bool(wanted) and any(
        wanted <= {_dump(keyword) for keyword in call.keywords}
        for call in calls
        if edit.at.name is None or _ends_with(call.func, edit.at.name)
    )


@is_present.register
def _(edit: RemoveArgument, module: cst.Module) -> bool:
    if isinstance(edit.at, str):
        function = _definition(module, edit.scope, edit.at)
        return function is not None and edit.name not in _parameters(function)
    calls = [
        node
        for node in _nodes(module, edit.scope)
        if isinstance(node, ast.Call)
        and (edit.at.name is None or _ends_with(node.func, edit.at.name))
    ]
    keywords = {keyword.arg for call in calls for keyword in call.keywords}
    return bool(calls) and edit.name not in keywords


@is_present.register
def _(edit: AddImport, module: cst.Module) -> bool:
    imported = {
        alias.name
        for node in _nodes(module, edit.scope)
        if isinstance(node, ast.ImportFrom) and node.module == edit.module
        for alias in node.names
    }
    return set(edit.names) <= imported


@is_present.register
def _(edit: AdmitMember, module: cst.Module) -> bool:
    scope = _scope(module, edit.scope)
    admitted = 0
    for node in walk(scope) if scope is not None else ():
        if isinstance(node, cst.Tuple | cst.List | cst.Set):
            values = [value_of(element.value) for element in node.elements]
            admitted += edit.like in values and edit.new in values
    return admitted >= edit.sites


def _has_statements(module: cst.Module, scope: str, code: str) -> bool:
    """Whether every statement of ``code`` stands somewhere in the scope."""
    there = {_dump(n) for n in _nodes(module, scope) if isinstance(n, ast.stmt)}
    wanted = ast.parse(dedent(code)).body
    if not wanted:  # comments alone
        return False
    return all(_dump(statement) in there for statement in wanted)


def _nodes(module: cst.Module, scope: str) -> Iterable[ast.AST]:
    node = _scope(module, scope)
    if node is None:
        return []
    return ast.walk(ast.parse(dedent(module.code_for_node(node))))


def _scope(module: cst.Module, name: str) -> cst.CSTNode | None:
    if not name:
        return module
    with suppress(EditError):
        return find_definition(module, name)
    return None


def _definition(
    module: cst.Module, scope: str, name: str
) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    with suppress(EditError):
        found = find_definition(module, f"{scope}.{name}" if scope else name)
        parsed = ast.parse(dedent(module.code_for_node(found))).body[0]
        if isinstance(parsed, ast.FunctionDef | ast.AsyncFunctionDef):
            return parsed
    return None


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> set[str]:
    if function is None:
        return set()
    arguments = function.args
    listed = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return {argument.arg for argument in listed}


def _expression(code: str) -> str:
    return _dump(ast.parse(f"({dedent(code).strip()})", mode="eval").body)


def _dump_of(module: cst.Module, node: cst.CSTNode) -> str:
    return _dump(_parsed(module, node))


def _parsed(module: cst.Module, node: cst.CSTNode) -> ast.expr:
    return ast.parse(f"({module.code_for_node(node)})", mode="eval").body


def _call(code: str) -> ast.Call:
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    return call


def _elements(literal: ast.expr) -> set[str]:
    if isinstance(literal, ast.Dict):
        return {
            f"{key and _dump(key)}: {_dump(value)}"
            for key, value in zip(literal.keys, literal.values, strict=True)
        }
    assert isinstance(literal, ast.List | ast.Tuple | ast.Set)
    return {_dump(element) for element in literal.elts}


def _is_mapping(code: str) -> bool:
    with suppress(SyntaxError):
        return isinstance(ast.parse(f"{{{code}}}", mode="eval").body, ast.Dict)
    return False


def _ends_with(function: ast.expr, name: str) -> bool:
    written = ast.unparse(function)
    return written == name or written.endswith(f".{name}")


def _dump(node: ast.AST) -> str:
    return ast.dump(node, annotate_fields=False)
