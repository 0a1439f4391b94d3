"""The edits that a patch may be made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent

import libcst as cst
import libcst.matchers as m

from patches.engine.patch import Edit, EditError
from patches.engine.place import (
    Definition,
    Find,
    dotted_name,
    find_all,
    find_definition,
    find_node,
    find_sites,
)
from patches.engine.rewrite import replace_node, replace_nodes

ORIGINAL = "__original__"
RECEIVER = "__receiver__"


@dataclass(frozen=True, kw_only=True)
class Insert(Edit):
    """Put statements before or after a definition or a statement.

    Attributes:
        code: the statements to insert.
        scope: qualified name of the class or function around the place.
        after: the definition (by name, in ``scope``) or statement to follow.
        before: the definition or statement to precede; exactly one of both is given.
    """

    code: str
    scope: str = ""
    after: str | Find | None = None
    before: str | Find | None = None

    def apply(self, module: cst.Module) -> cst.Module:
        if (self.after is None) == (self.before is None):
            raise EditError("give exactly one of after and before")
        place = self.after if self.after is not None else self.before
        if isinstance(place, str):
            name = f"{self.scope}.{place}" if self.scope else place
            anchor: cst.CSTNode = find_definition(module, name)
        else:
            assert place is not None
            anchor = find_node(module, self.scope, place)
        if not isinstance(anchor, cst.BaseStatement):
            raise EditError(f"{place} is not a statement")
        new = _spaced(parse_statements(self.code), at_top=self.scope == "")
        sequence = [anchor, *new] if self.after is not None else [*new, anchor]
        return replace_node(module, anchor, sequence)


@dataclass(frozen=True, kw_only=True)
class ReplaceBody(Edit):
    """Replace the body of a function; its signature and decorators stay."""

    function: str
    code: str

    def apply(self, module: cst.Module) -> cst.Module:
        definition = find_definition(module, self.function)
        if not isinstance(definition, cst.FunctionDef):
            raise EditError(f"{self.function} is not a function")
        body = cst.IndentedBlock(body=parse_statements(self.code))
        return replace_node(module, definition.body, [body])


@dataclass(frozen=True, kw_only=True)
class ReplaceStatement(Edit):
    """Replace one statement by others; ``code`` may be empty to remove it."""

    scope: str = ""
    at: Find
    code: str

    def apply(self, module: cst.Module) -> cst.Module:
        statement = find_node(module, self.scope, self.at)
        if not isinstance(statement, cst.BaseStatement):
            raise EditError(f"{self.at} is not a statement")
        return replace_node(module, statement, parse_statements(self.code))


@dataclass(frozen=True, kw_only=True)
class ReplaceExpression(Edit):
    """Replace an expression, an if's test, or an assigned or returned value.

    Attributes:
        at: an expression, or a statement whose test or value is meant.
        code: the new expression; ``__original__`` in it stands for the old one, and
            ``__receiver__`` for the object that an old method call is made on.
        sites: how many such places there must be; all are replaced.
    """

    scope: str = ""
    at: Find
    code: str
    sites: int = 1

    def apply(self, module: cst.Module) -> cst.Module:
        found = find_sites(module, self.scope, self.at, self.sites)
        olds = [expression_of(node) for node in found]
        return replace_nodes(module, [(old, [_fill(self.code, old)]) for old in olds])


@dataclass(frozen=True, kw_only=True)
class ExtendCollection(Edit):
    """Add elements to a literal tuple, list or set, or entries to a dict.

    Attributes:
        at: the collection, or the assignment whose value it is.
        code: the elements as they would stand inside the literal.
    """

    scope: str = ""
    at: Find
    code: str

    def apply(self, module: cst.Module) -> cst.Module:
        found = find_node(module, self.scope, self.at)
        old = found if _is_collection(found) else expression_of(found)
        if not _is_collection(old):
            raise EditError(f"{self.at} is not a literal collection")
        return replace_node(module, old, [_extended(old, self.code)])


@dataclass(frozen=True, kw_only=True)
class AddArgument(Edit):
    """Add an argument to a call, or a parameter after the last one of a function.

    Attributes:
        at: the call, or the name of the function.
        code: the argument or parameter, as ``device=device``.
    """

    scope: str = ""
    at: str | Find
    code: str

    def apply(self, module: cst.Module) -> cst.Module:
        if isinstance(self.at, str):
            return self._add_parameter(module, self.at)
        old = find_node(module, self.scope, self.at)
        if not isinstance(old, cst.Call):
            raise EditError(f"{self.at} is not a call")
        added = cst.ensure_type(cst.parse_expression(f"f({self.code})"), cst.Call).args
        args = [*old.args]
        if args and not isinstance(args[-1].comma, cst.Comma):
            args[-1] = args[-1].with_changes(comma=_COMMA)
        return replace_node(module, old, [old.with_changes(args=[*args, *added])])

    def _add_parameter(self, module: cst.Module, name: str) -> cst.Module:
        function = find_definition(
            module, f"{self.scope}.{name}" if self.scope else name
        )
        if not isinstance(function, cst.FunctionDef):
            raise EditError(f"{name} is not a function")
        parsed = cst.ensure_type(
            cst.parse_statement(f"def f({self.code}): pass"), cst.FunctionDef
        )
        old = function.params
        field = "kwonly_params" if old.kwonly_params else "params"
        present = [*getattr(old, field)]
        if present and not isinstance(present[-1].comma, cst.Comma):
            present[-1] = present[-1].with_changes(comma=_COMMA)
        new = old.with_changes(**{field: [*present, *parsed.params.params]})
        return replace_node(module, old, [new])


@dataclass(frozen=True, kw_only=True)
class RemoveArgument(Edit):
    """Remove a keyword argument from a call, or a parameter from a function.

    Attributes:
        at: the call, or the name of the function.
        name: the keyword, or the name of the parameter.
    """

    scope: str = ""
    at: str | Find
    name: str

    def apply(self, module: cst.Module) -> cst.Module:
        if isinstance(self.at, str):
            return self._remove_parameter(module, self.at)
        call = find_node(module, self.scope, self.at)
        if not isinstance(call, cst.Call):
            raise EditError(f"{self.at} is not a call")
        found = [arg for arg in call.args if dotted_name(arg.keyword) == self.name]
        if len(found) != 1:
            raise EditError(f"{self.at} has {len(found)} arguments {self.name!r}")
        return replace_node(module, found[0], [])

    def _remove_parameter(self, module: cst.Module, name: str) -> cst.Module:
        qualified_name = f"{self.scope}.{name}" if self.scope else name
        function = find_definition(module, qualified_name)
        if not isinstance(function, cst.FunctionDef):
            raise EditError(f"{name} is not a function")
        params = function.params
        found = [
            param
            for param in (*params.posonly_params, *params.params, *params.kwonly_params)
            if param.name.value == self.name
        ]
        if len(found) != 1:
            raise EditError(f"{name} has {len(found)} parameters {self.name!r}")
        return replace_node(module, found[0], [])


@dataclass(frozen=True, kw_only=True)
class AddImport(Edit):
    """Import names from a module that the file imports from already, or insert a new
    import after a named one.

    Attributes:
        module: the module to import from.
        names: the names to import.
        after: the module whose import the new statement follows; by default the names
            join the import of ``module`` that is there.
        scope: the function that holds the import, if it is not at the top.
    """

    module: str
    names: tuple[str, ...]
    after: str | None = None
    scope: str = ""

    def apply(self, module: cst.Module) -> cst.Module:
        if self.after is not None:
            anchor = find_node(module, self.scope, Find("import", self.after))
            code = f"from {self.module} import {', '.join(sorted(self.names))}"
            return replace_node(module, anchor, [anchor, *parse_statements(code)])
        line = find_node(module, self.scope, Find("import", self.module))
        old = cst.ensure_type(
            cst.ensure_type(line, cst.SimpleStatementLine).body[0], cst.ImportFrom
        )
        if isinstance(old.names, cst.ImportStar):
            raise EditError(f"the import of {self.module} is a star import")
        parsed = {alias.evaluated_name: alias for alias in old.names}
        for name in self.names:
            parsed[name] = cst.ImportAlias(name=cst.Name(name))
        ordered = [parsed[name] for name in sorted(parsed, key=_isort_key)]
        comma = old.names[0].comma if len(old.names) > 1 else _COMMA
        last = old.names[-1].comma
        names = [alias.with_changes(comma=comma) for alias in ordered[:-1]]
        names.append(ordered[-1].with_changes(comma=last))
        return replace_node(module, old, [old.with_changes(names=names)])


@dataclass(frozen=True, kw_only=True)
class AdmitMember(Edit):
    """Let a new name through wherever a scope lets a like name through.

    Every literal collection that holds ``like`` gets ``new`` after it, every
    ``x == like`` becomes ``x in (like, new)``, and ``!=`` likewise.

    Attributes:
        like: a string value, or a dotted name such as ``Algorithm.EAGLE``.
        new: the value to admit, in the same form.
        sites: how many places there must be.
        scope: qualified name; the whole module by default.
    """

    like: str
    new: str
    sites: int
    scope: str = ""

    def apply(self, module: cst.Module) -> cst.Module:
        root = find_definition(module, self.scope) if self.scope else module
        found = [
            node
            for kind in ("collection", "compare")
            for node in find_all(root, Find(kind))
            if self._admits(node)
        ]
        if len(found) != self.sites:
            raise EditError(
                f"{self.like!r} is let through in {len(found)} places of "
                f"{self.scope or 'the module'}, expected {self.sites}"
            )
        return replace_nodes(module, [(node, [self._widened(node)]) for node in found])

    def _admits(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Comparison):
            comparison = node.comparisons[0]
            return (
                len(node.comparisons) == 1
                and isinstance(comparison.operator, cst.Equal | cst.NotEqual)
                and self._is_like(comparison.comparator)
            )
        assert isinstance(node, cst.Tuple | cst.List | cst.Set | cst.Dict)
        if isinstance(node, cst.Dict):
            return False
        values = [element.value for element in node.elements]
        return any(map(self._is_like, values)) and self.new not in map(value_of, values)

    def _is_like(self, node: cst.CSTNode) -> bool:
        return value_of(node) == self.like

    def _widened(self, node: cst.CSTNode) -> cst.CSTNode:
        is_string = "." not in self.new
        new = f'"{self.new}"' if is_string else self.new
        if not isinstance(node, cst.Comparison):
            return _extended(node, new, after=self._is_like)
        comparison = node.comparisons[0]
        like = cst.Module(body=[]).code_for_node(comparison.comparator)
        operator = "in" if isinstance(comparison.operator, cst.Equal) else "not in"
        template = cst.ensure_type(
            cst.parse_expression(f"x {operator} ({like}, {new})"), cst.Comparison
        )
        return node.with_changes(comparisons=template.comparisons)


_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def parse_statements(code: str) -> list[cst.BaseStatement]:
    """Parse statements; comments before the first one stay with it.

    Raises:
        EditError: the code does not parse.
    """
    try:
        module = cst.parse_module(dedent(code).strip("\n") + "\n")
    except cst.ParserSyntaxError as error:
        raise EditError(f"the code of the edit does not parse: {error}") from error
    body: list[cst.BaseStatement] = [*module.body]
    if module.header and body:
        leading = [*module.header, *body[0].leading_lines]  # type: ignore[attr-defined]
        body[0] = body[0].with_changes(leading_lines=leading)
    return body


def _spaced(body: list[cst.BaseStatement], at_top: bool) -> list[cst.BaseStatement]:
    """Give definitions the blank lines that black puts before them."""
    blank = [cst.EmptyLine(indent=False)] * (2 if at_top else 1)
    spaced = []
    for node in body:
        if isinstance(node, Definition):
            lines = [line for line in node.leading_lines if line.comment]
            node = node.with_changes(leading_lines=[*blank, *lines])
        spaced.append(node)
    return spaced


def expression_of(node: cst.CSTNode) -> cst.BaseExpression:
    """Return an expression as it is; of a statement its test or its value.

    Raises:
        EditError: the node has neither.
    """
    if isinstance(node, cst.If | cst.While):
        return node.test
    if isinstance(node, cst.For):
        return node.iter
    if isinstance(node, cst.Arg):
        return node.value
    if isinstance(node, cst.SimpleStatementLine):
        value = getattr(node.body[0], "value", None)
        if isinstance(value, cst.BaseExpression):
            return value
        test = getattr(node.body[0], "test", None)
        if isinstance(test, cst.BaseExpression):
            return test
    if isinstance(node, cst.BaseExpression):
        return node
    raise EditError(f"a {type(node).__name__} has no expression to replace")


def _fill(template: str, original: cst.BaseExpression) -> cst.BaseExpression:
    needs_parentheses = isinstance(
        original, cst.BooleanOperation | cst.IfExp | cst.Lambda
    )
    if needs_parentheses and template.strip() != ORIGINAL and not original.lpar:
        original = original.with_changes(
            lpar=[cst.LeftParen()], rpar=[cst.RightParen()]
        )
    try:
        code = dedent(template).strip()
        new = cst.parse_expression(f"(\n{code}\n)" if "\n" in code else code)
    except cst.ParserSyntaxError as error:
        raise EditError(f"the code of the edit does not parse: {error}") from error
    if isinstance(new, cst.Name) and new.value == ORIGINAL:
        return original
    filled = m.replace(new, m.Name(ORIGINAL), original)
    if isinstance(original, cst.Call) and isinstance(original.func, cst.Attribute):
        receiver = original.func.value
        if isinstance(filled, cst.Name) and filled.value == RECEIVER:
            return receiver
        filled = m.replace(filled, m.Name(RECEIVER), receiver)
    assert isinstance(filled, cst.BaseExpression)
    return filled


def _is_collection(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Tuple | cst.List | cst.Set | cst.Dict)


def _extended(
    node: cst.CSTNode,
    code: str,
    after: Callable[[cst.CSTNode], bool] | None = None,
) -> cst.CSTNode:
    """Return the collection with elements added at its end or after one of its own."""
    assert isinstance(node, cst.Tuple | cst.List | cst.Set | cst.Dict)
    brackets = ("{", "}") if isinstance(node, cst.Dict | cst.Set) else ("[", "]")
    literal = cst.parse_expression(f"{brackets[0]}{code}{brackets[1]}")
    assert isinstance(literal, cst.List | cst.Set | cst.Dict)
    old = [*node.elements]
    where = len(old)
    if after is not None:
        where = next(i for i, element in enumerate(old) if after(element.value)) + 1
    between = old[0].comma if len(old) > 1 else _COMMA
    if not isinstance(between, cst.Comma):
        between = _COMMA
    last = old[-1].comma if old else cst.MaybeSentinel.DEFAULT
    elements = [*old[:where], *literal.elements, *old[where:]]
    spaced = [element.with_changes(comma=between) for element in elements[:-1]]
    spaced.append(elements[-1].with_changes(comma=last if len(old) > 1 else between))
    if len(old) <= 1:
        spaced[-1] = spaced[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return node.with_changes(elements=spaced)


def value_of(node: cst.CSTNode) -> str:
    """Return the value of a string or a dotted name; empty for the rest."""
    if isinstance(node, cst.SimpleString):
        return str(node.evaluated_value)
    return dotted_name(node)


def _isort_key(name: str) -> tuple[int, str]:
    """isort's order with force_sort_within_sections off: CONSTANTS, Classes, names."""
    if name.isupper() and len(name) > 1:
        return (0, name)
    if name[0].isupper():
        return (1, name)
    return (2, name)
