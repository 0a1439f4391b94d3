"""A place is found once, by scope, kind and the names it mentions."""

from textwrap import dedent

import libcst as cst
import pytest

from patches.engine.patch import EditError
from patches.engine.place import Find, find_definition, find_node, find_sites

SOURCE = cst.parse_module(
    dedent(
        """
        if FLAG:
            def helper():
                return 1

        class Engine:
            limit: int = 3

            def start(self, port):
                if port == 0 and self.free:
                    port = self.pick("any")
                for worker in self.workers:
                    worker.start(port, daemon=True)
                while not self.ready:
                    self.wait()
                with self.lock:
                    self.port = port
                try:
                    self.check(port)
                except OSError:
                    raise RuntimeError("no port")
                return self.port

            def stop(self):
                self.wait()
                self.wait()
        """
    )
)
START = "Engine.start"


def code(node: cst.CSTNode) -> str:
    return cst.Module(body=[]).code_for_node(node).strip()


@pytest.mark.parametrize(
    ("scope", "find", "begins"),
    [
        ("Engine", Find("assign", "limit"), "limit: int"),
        (START, Find("assign", "self.port"), "self.port = port"),
        (START, Find("if", mentions=("port", "free")), "if port == 0"),
        (START, Find("call", "self.pick"), "self.pick("),
        (START, Find("call statement", "self.check"), "self.check(port)"),
        (START, Find("method call", "start"), "worker.start("),
        (START, Find("keyword", "daemon"), "daemon=True"),
        (START, Find("for", mentions=("workers",)), "for worker"),
        (START, Find("while"), "while not"),
        (START, Find("not"), "not self.ready"),
        (START, Find("with", mentions=("lock",)), "with self.lock"),
        (START, Find("try"), "try:"),
        (START, Find("raise", "RuntimeError"), "raise RuntimeError"),
        (START, Find("return"), "return self.port"),
        (START, Find("compare"), "port == 0"),
        (START, Find("boolean"), "port == 0 and"),
        (START, Find("string", "any"), '"any"'),
        (START, Find("attribute", "self.workers"), "self.workers"),
        ("Engine.stop", Find("call", "self.wait", nth=1, of=2), "self.wait()"),
        (START, Find("assign", "port", within=Find("if")), "port = self.pick"),
    ],
)
def test_a_node_is_found_by_its_kind(scope, find, begins):
    assert code(find_node(SOURCE, scope, find)).startswith(begins)


def test_a_definition_under_an_if_is_found():
    assert find_definition(SOURCE, "helper").name.value == "helper"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Engine.pause", "'pause' is there 0 times, expected once"),
        ("Motor.start", "'Motor' is there 0 times"),
    ],
)
def test_a_missing_definition_is_an_error(name, message):
    with pytest.raises(EditError, match=message):
        find_definition(SOURCE, name)


@pytest.mark.parametrize(
    ("scope", "find", "message"),
    [
        ("Engine.stop", Find("return"), "return in Engine.stop: found 0 times"),
        ("Engine.stop", Find("call", "self.wait"), "found 2 times, expected once"),
        ("Engine.stop", Find("call", "self.wait", nth=0, of=3), "found 2 matches"),
        (START, Find("call", "f", within=Find("if")), "call 'f' within if .* 0 times"),
        ("", Find("loop"), "unknown kind 'loop'; known: assign"),
    ],
)
def test_a_node_that_is_not_there_once_is_an_error(scope, find, message):
    with pytest.raises(EditError, match=message):
        find_node(SOURCE, scope, find)


def test_mentions_of_a_compound_statement_are_those_of_its_header():
    with pytest.raises(EditError, match="found 0 times"):
        find_node(SOURCE, START, Find("if", mentions=("pick",)))


def test_all_sites_are_found_or_none():
    find = Find("call", "self.wait")
    assert len(find_sites(SOURCE, "Engine.stop", find, 2)) == 2
    with pytest.raises(EditError, match="found 2 times, expected 3"):
        find_sites(SOURCE, "Engine.stop", find, 3)
