"""Everything that lets EAGLE through lets NEXTN through.

The places are found by walking every module's syntax tree, so that no change can add
one unseen.
"""

import ast
import importlib.util
import unittest
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, Optional, Tuple

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=20, suite="base-a-test-cpu")

LIKE, NEW = "EAGLE", "NEXTN"

# Folders whose modules start servers of their own or serve other kinds of models.
OUT_OF_SCOPE = ("test/", "multimodal_gen/", "benchmark/")

# Each way to name EAGLE, so that a walk that overlooks one is no proof.
EXAMPLES = (
    'x == "EAGLE"',
    'x not in ("EAGLE", "EAGLE3")',
    'assert x in {None, "EAGLE"}',
    'names = ["EAGLE"]',
    'table = {"EAGLE": 1}',
    "x != SpeculativeAlgorithm.EAGLE",
    "members = (SpeculativeAlgorithm.EAGLE, SpeculativeAlgorithm.EAGLE3)",
    'match x:\n    case "EAGLE":\n        pass',
)


@dataclass(frozen=True)
class Site:
    """A place that names EAGLE, as a string or as a member of the enum."""

    file: str
    line: int
    kind: str
    names: Tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.kind} of {', '.join(self.names)}"


def find_sites(source: str, file: str) -> Iterator[Site]:
    """Yield literal collections, comparisons, dict keys and match cases with EAGLE."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
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


def _name(node: ast.AST) -> Optional[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Attribute) and "Algo" in ast.unparse(node.value):
        return node.attr
    return None


def sites_of_sglang():
    package = Path(importlib.util.find_spec("sglang").submodule_search_locations[0])
    for path in sorted(package.rglob("*.py")):
        file = str(path.relative_to(package))
        source = path.read_text()
        if not file.startswith(OUT_OF_SCOPE) and LIKE in source:
            yield from find_sites(source, file)


class TestNextnIsLetThrough(CustomTestCase):
    def test_every_place_that_lets_eagle_through_lets_nextn_through(self):
        for example in EXAMPLES:
            found = list(find_sites(example, "example.py"))
            self.assertTrue(found, example)
            self.assertFalse(any(NEW in site.names for site in found), example)
        (both,) = find_sites('x in ("EAGLE", "NEXTN")', "example.py")
        self.assertIn(NEW, both.names)
        sites = list(sites_of_sglang())
        self.assertEqual([str(s) for s in sites if NEW not in s.names], [])
        files = {site.file for site in sites}
        self.assertLessEqual(
            {
                "srt/speculative/spec_info.py",
                "srt/arg_groups/speculative_hook.py",
                "srt/lora/utils.py",
            },
            files,
        )
        self.assertGreaterEqual(len(files), 15)


if __name__ == "__main__":
    unittest.main()
