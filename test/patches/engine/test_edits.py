"""Each kind of edit, on small modules of our own."""

from textwrap import dedent

import libcst as cst
import pytest

from patches.engine.edits import (
    AddArgument,
    AddImport,
    AdmitMember,
    ExtendCollection,
    Insert,
    RemoveArgument,
    ReplaceBody,
    ReplaceExpression,
    ReplaceStatement,
)
from patches.engine.patch import Edit, EditError
from patches.engine.place import Find


def edited(source: str, edit: Edit) -> str:
    return edit.apply(cst.parse_module(dedent(source).lstrip("\n"))).code


def check(source: str, edit: Edit, expected: str) -> None:
    assert edited(source, edit) == dedent(expected).lstrip("\n")


def test_insert_puts_statements_after_a_statement_and_keeps_comments():
    check(
        """
        def scale(x):
            # Halve it.
            y = x / 2
            return y
        """,
        Insert(
            file="f.py",
            scope="scale",
            after=Find("assign", "y"),
            code="""
            # Why not.
            y += 1
            """,
        ),
        """
        def scale(x):
            # Halve it.
            y = x / 2
            # Why not.
            y += 1
            return y
        """,
    )


def test_insert_puts_a_method_before_another_with_blank_lines():
    check(
        """
        class Box:
            def width(self):
                return 1
        """,
        Insert(
            file="f.py",
            scope="Box",
            before="width",
            code="""
            def height(self):
                return 2
            """,
        ),
        """
        class Box:

            def height(self):
                return 2
            def width(self):
                return 1
        """,
    )


@pytest.mark.parametrize("place", [{}, {"after": "f", "before": "f"}])
def test_insert_wants_exactly_one_side(place):
    with pytest.raises(EditError, match="exactly one of after and before"):
        edited("def f(): pass\n", Insert(file="f.py", code="x = 1", **place))


def test_insert_beside_an_expression_is_an_error():
    with pytest.raises(EditError, match="call 'g' is not a statement"):
        edited("x = g()\n", Insert(file="f.py", after=Find("call", "g"), code="y = 1"))


def test_replace_body_keeps_signature_and_decorators():
    check(
        """
        @cached
        def area(box, *, unit="m"):
            return box.x * box.y
        """,
        ReplaceBody(file="f.py", function="area", code="return box.area(unit)"),
        """
        @cached
        def area(box, *, unit="m"):
            return box.area(unit)
        """,
    )


def test_replace_statement_by_several_and_by_none():
    source = """
    def f(x):
        check(x)
        return x
    """
    two = ReplaceStatement(
        file="f.py", scope="f", at=Find("call statement", "check"), code="a(x)\nb(x)"
    )
    none = ReplaceStatement(
        file="f.py", scope="f", at=Find("call statement", "check"), code=""
    )
    check(source, two, "def f(x):\n    a(x)\n    b(x)\n    return x\n")
    check(source, none, "def f(x):\n    return x\n")


@pytest.mark.parametrize(
    ("source", "at", "code", "expected"),
    [
        (
            "if a or b:\n    c()\n",
            Find("if"),
            "__original__ and d",
            "if (a or b) and d:",
        ),
        ("x = a\n", Find("assign", "x"), "f(__original__)", "x = f(a)"),
        ("g(size=3)\n", Find("keyword", "size"), "4", "g(size=4)"),
        (
            "y = t.cpu().pin()\n",
            Find("method call", "pin"),
            "p(__receiver__)",
            "p(t.cpu())",
        ),
        ("y = t.pin()\n", Find("method call", "pin"), "__receiver__", "y = t\n"),
        ("assert a == 1\n", Find("assert"), "a > 0", "assert a > 0"),
        ("for i in xs:\n    f(i)\n", Find("for"), "ys", "for i in ys:"),
    ],
)
def test_replace_expression(source, at, code, expected):
    assert expected in edited(source, ReplaceExpression(file="f.py", at=at, code=code))


def test_replace_expression_at_several_sites():
    edit = ReplaceExpression(
        file="f.py", at=Find("keyword", "pin"), code="can_pin()", sites=2
    )
    assert edited("a(pin=True)\nb(1, pin=True)\n", edit) == (
        "a(pin=can_pin())\nb(1, pin=can_pin())\n"
    )
    with pytest.raises(EditError, match="found 1 times, expected 2"):
        edited("a(pin=True)\n", edit)


@pytest.mark.parametrize(
    ("literal", "code", "expected"),
    [
        ("[1, 2]", "3", "[1, 2, 3]"),
        ("(1,)", "2", "(1, 2)"),
        ("{1, 2}", "3, 4", "{1, 2, 3, 4}"),
        ('{"a": 1}', '"b": 2', '{"a": 1, "b": 2}'),
        ("[]", "1", "[1]"),
    ],
)
def test_extend_collection(literal, code, expected):
    edit = ExtendCollection(file="f.py", at=Find("assign", "xs"), code=code)
    assert edited(f"xs = {literal}\n", edit) == f"xs = {expected}\n"


def test_extend_collection_of_a_call_is_an_error():
    with pytest.raises(EditError, match="not a literal collection"):
        edited(
            "xs = list()\n",
            ExtendCollection(file="f.py", at=Find("assign", "xs"), code="1"),
        )


def test_arguments_and_parameters_are_added_and_removed():
    call = Find("call", "f")
    add = AddArgument(file="f.py", at=call, code="device=device")
    assert edited("f(1)\n", add) == "f(1, device=device)\n"
    parameter = AddArgument(file="f.py", at="f", code="device=None")
    assert edited("def f(x): pass\n", parameter) == "def f(x, device=None): pass\n"
    remove = RemoveArgument(file="f.py", at=call, name="device")
    assert edited("f(1, device=d)\n", remove).replace(", )", ")") == "f(1)\n"
    parameter_gone = RemoveArgument(file="f.py", at="f", name="y")
    assert edited("def f(x, *, y, z): pass\n", parameter_gone) == (
        "def f(x, *, z): pass\n"
    )


@pytest.mark.parametrize("at", ["f", Find("call", "f")])
def test_removing_what_is_not_there_is_an_error(at):
    with pytest.raises(EditError, match="'device'"):
        edited(
            "def f(x): pass\nf(1)\n", RemoveArgument(file="f.py", at=at, name="device")
        )


def test_import_joins_the_names_in_isorts_order():
    edit = AddImport(file="f.py", module="m", names=("b", "A", "LIMIT"))
    assert edited("from m import C, a\n", edit) == "from m import LIMIT, A, C, a, b\n"


def test_import_of_a_new_module_follows_a_named_one():
    edit = AddImport(file="f.py", module="n", names=("b", "a"), after="m")
    assert edited("import m\nx = 1\n", edit) == "import m\nfrom n import a, b\nx = 1\n"


def test_a_member_is_admitted_wherever_its_like_is():
    source = 'ok = name == "EAGLE"\nnames = ["EAGLE", "NGRAM"]\nno = name != "EAGLE"\n'
    edit = AdmitMember(file="f.py", like="EAGLE", new="NEXTN", sites=3)
    assert edited(source, edit) == (
        'ok = name in ("EAGLE", "NEXTN")\n'
        'names = ["EAGLE", "NEXTN", "NGRAM"]\n'
        'no = name not in ("EAGLE", "NEXTN")\n'
    )
    with pytest.raises(EditError, match="in 3 places of the module, expected 2"):
        edited(source, AdmitMember(file="f.py", like="EAGLE", new="NEXTN", sites=2))


@pytest.mark.parametrize(
    "edit",
    [
        Insert(file="f.py", after="f", code="def ("),
        ReplaceBody(file="f.py", function="f", code="return ("),
        ReplaceExpression(file="f.py", scope="f", at=Find("return"), code="1 +"),
    ],
)
def test_code_that_does_not_parse_is_an_error(edit):
    with pytest.raises(EditError, match="does not parse"):
        edited("def f():\n    return 1\n", edit)
