"""Finds where upstream's source rewrites a setting outside the resolution journal."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Names under which the settings are passed around.
_RECORDS = ("server_args", "cfg", "view")
_MODEL_RECORDS = ("model_config", "load_config")


@dataclass(frozen=True, order=True)
class Rewrite:
    """A place that gives a setting another value.

    Attributes:
        file: path below the ``sglang`` package.
        scope: qualified name of the function around it.
        target: what is rewritten there, as written.
    """

    file: str
    scope: str
    target: str

    def __str__(self) -> str:
        return f"{self.file}::{self.scope}::{self.target}"


def setting_names(package: Path) -> set[str]:
    """The fields of ``ServerArgs``, read from their declarations."""
    return {
        node.target.id
        for file in (package / "srt/arg_groups/fields").glob("*.py")
        for class_ in ast.parse(file.read_text()).body
        if isinstance(class_, ast.ClassDef)
        for node in class_.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and ast.unparse(node.annotation).startswith("A[")
    }


def find_rewrites(package: Path) -> set[Rewrite]:
    """Return every place below ``srt`` and in the launcher, by four patterns."""
    settings = setting_names(package)
    files = [package / "launch_server.py", *sorted(package.glob("srt/**/*.py"))]
    return {
        Rewrite(str(file.relative_to(package)), scope, target)
        for file in files
        if not file.stem.startswith("test_")
        for scope, target in _rewrites_in(file, settings)
    }


def scopes_that_call(package: Path, file: str, names: tuple[str, ...]) -> set[str]:
    """The qualified names of the functions of a file that call one of ``names``."""
    tree = ast.parse((package / file).read_text())
    return {
        scope
        for scope, node in _walk(tree)
        if isinstance(node, ast.Call) and _dotted(node.func) in names
    }


def _rewrites_in(file: Path, settings: set[str]) -> Iterator[tuple[str, str]]:
    tree = ast.parse(file.read_text())
    in_journal = "arg_groups" in file.parts
    held: dict[tuple[str, str], set[str]] = {}
    assigned: list[tuple[str, str, str]] = []
    for scope, node in _walk(tree):
        if isinstance(node, ast.Call):
            yield from ((scope, target) for target in _overridden(node, settings))
            if not in_journal:
                yield from ((scope, target) for target in _variables_set(node))
        for target, value in _assignments(node):
            name = _dotted(target)
            if not name:
                continue
            if _is_field_of_record(target, settings):
                yield scope, name
            place = (scope if isinstance(target, ast.Name) else _class_of(scope), name)
            if value is not None and _holds_setting(value, settings):
                held.setdefault(place, set()).add(ast.unparse(value))
            elif value is not None:
                assigned.append((scope, name, _class_of(scope)))
    if in_journal:
        return
    for scope, name, class_ in assigned:
        if (scope, name) in held or (class_, name) in held:
            yield scope, name


def _walk(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every node below ``tree`` with the qualified name of the scope around it."""
    pending = [("", tree)]
    while pending:
        scope, parent = pending.pop()
        for node in ast.iter_child_nodes(parent):
            yield scope, node
            inner = scope
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{scope}.{node.name}".lstrip(".")
            pending.append((inner, node))


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        yield node.target, node.value


def _is_field_of_record(target: ast.expr, settings: set[str]) -> bool:
    """``server_args.page_size``, ``self.model_config.quantization`` and the like."""
    if not isinstance(target, ast.Attribute) or target.attr not in settings:
        return False
    owner = _dotted(target.value).split(".")[-1]
    return owner in _RECORDS or owner in _MODEL_RECORDS


def _holds_setting(value: ast.expr, settings: set[str]) -> bool:
    """``get_exec().kernel.attention_backend``, also with an alternative after it."""
    while isinstance(value, ast.BoolOp):
        value = value.values[0]
    if not isinstance(value, ast.Attribute) or value.attr not in settings:
        return False
    root: ast.expr = value
    while isinstance(root, ast.Attribute):
        if root.attr in _RECORDS:
            return True
        root = root.value
    if isinstance(root, ast.Name):
        return root.id in _RECORDS
    return isinstance(root, ast.Call) and _dotted(root.func).startswith("get_")


def _overridden(call: ast.Call, settings: set[str]) -> Iterator[str]:
    """``get_context().override(source, …)`` and a bag's scoped ``override(…)``."""
    function = _dotted(call.func)
    if not function.endswith(".override") or not function.startswith("get_"):
        return
    if function.startswith("get_context()."):
        source = call.args[0] if call.args else call.keywords[0].value
        yield f"override {ast.unparse(source)}"
        return
    for keyword in call.keywords:
        if keyword.arg in settings:
            yield f"{function}({keyword.arg})"


def _variables_set(call: ast.Call) -> Iterator[str]:
    function = _dotted(call.func)
    if function.startswith("envs.") and function.endswith(".set"):
        yield function


def _dotted(node: ast.expr) -> str:
    """``a.b().c`` of names, attributes and calls; an empty string for the rest."""
    parts: list[str] = []
    suffix = ""
    while True:
        if isinstance(node, ast.Call):
            suffix, node = "()", node.func
        elif isinstance(node, ast.Attribute):
            parts.append(node.attr + suffix)
            suffix, node = "", node.value
        elif isinstance(node, ast.Name):
            return ".".join([node.id + suffix, *reversed(parts)])
        else:
            return ""


def _class_of(scope: str) -> str:
    return scope.rpartition(".")[0]
