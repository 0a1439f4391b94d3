"""Everything in the patched tree that lets EAGLE through lets NEXTN through.

The places are found by walking every module's syntax tree, so that a new upstream
release cannot add one unseen.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

LIKE, NEW = "EAGLE", "NEXTN"

# Folders whose modules start servers of their own or serve other kinds of models.
OUT_OF_SCOPE = ("test/", "multimodal_gen/", "benchmark/")


@dataclass(frozen=True)
class Site:
    """A place that names EAGLE, as a string or as a member of the enum."""

    file: str
    line: int
    kind: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.kind} of {', '.join(self.names)}"


def find_sites(source: str, file: str) -> Iterator[Site]:
    """Yield literal collections, comparisons, dict keys and match cases with EAGLE."""
    for node in ast.walk(ast.parse(source)):
        names: list[ast.AST] = []
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            names = [*node.elts]
        elif isinstance(node, ast.Dict):
            names = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.Compare):
            names = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            names = [
                pattern.value
                for case in node.cases
                for pattern in ast.walk(case.pattern)
                if isinstance(pattern, ast.MatchValue)
            ]
        found = tuple(name for name in map(_name, names) if name)
        if LIKE in found:
            yield Site(file, node.lineno, type(node).__name__, found)


def _name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Attribute) and "Algo" in ast.unparse(node.value):
        return node.attr
    return None


def patched_sites() -> list[Site]:
    """Return every site of the installed fork."""
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.submodule_search_locations is not None
    package = Path(next(iter(spec.submodule_search_locations)))
    sites: list[Site] = []
    for path in sorted(package.rglob("*.py")):
        file = str(path.relative_to(package))
        source = path.read_text()
        if not file.startswith(OUT_OF_SCOPE) and LIKE in source:
            sites += find_sites(source, file)
    return sites


def test_every_place_that_lets_eagle_through_lets_nextn_through():
    assert [str(site) for site in patched_sites() if NEW not in site.names] == []


def test_the_walk_finds_the_places_that_are_known():
    files = {site.file for site in patched_sites()}
    assert {
        "srt/speculative/spec_info.py",
        "srt/arg_groups/speculative_hook.py",
        "srt/lora/utils.py",
        "srt/managers/scheduler_components/metrics_reporter.py",
    } <= files
    assert len(files) >= 15


@pytest.mark.parametrize(
    "source",
    [
        'x == "EAGLE"',
        'x not in ("EAGLE", "EAGLE3")',
        'assert x in {None, "EAGLE"}',
        'names = ["EAGLE"]',
        'table = {"EAGLE": 1}',
        "x != SpeculativeAlgorithm.EAGLE",
        "members = (SpeculativeAlgorithm.EAGLE, SpeculativeAlgorithm.EAGLE3)",
        'match x:\n    case "EAGLE":\n        pass',
    ],
)
def test_each_way_to_name_eagle_is_found(source: str):
    sites = list(find_sites(source, "example.py"))
    assert len(sites) >= 1
    assert all(NEW not in site.names for site in sites)


def test_a_place_that_names_both_is_no_finding():
    sites = list(find_sites('x in ("EAGLE", "NEXTN")', "example.py"))
    assert [site.names for site in sites] == [("EAGLE", "NEXTN")]
