"""Proves that each commit's tests pass with it, and fail without it."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from patches.engine.export import PACKAGE, TESTS, run_git
from patches.engine.patch import Patch

# A CPU build of sgl_kernel is no part of the series: each tree runs with the one that
# is installed here, as on a machine with upstream's image for CPUs.
_PYTEST = """
import sys
from sgl_kernel_cpu.select import install

install()
import pytest

sys.exit(pytest.main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Proof:
    """What a commit's own tests did.

    Attributes:
        passed_after: tests that pass in the commit's tree.
        failed_after: tests that do not; the commit is wrong if there are any.
        passed_before: tests that pass without the commit too, and so prove nothing.
    """

    patch: Patch
    passed_after: Sequence[str]
    failed_after: Sequence[str]
    passed_before: Sequence[str]

    @property
    def holds(self) -> bool:
        return bool(self.passed_after) and not (self.failed_after or self.passed_before)

    def __str__(self) -> str:
        lines = [
            f"{self.patch.number:4}  {len(self.passed_after)} tests pass with the "
            f"commit, {len(self.passed_before)} of them without: {self.patch.title}"
        ]
        lines += [f"      fails with the commit: {name}" for name in self.failed_after]
        lines += [f"      passes without it: {name}" for name in self.passed_before]
        return "\n".join(lines)


class Trees:
    """Two work trees of the exported series: with a commit, and without it.

    Args:
        repository: work tree whose last commits are the series.
        scratch: folder to make the two in.
        kernels: folder with the packages that are no part of the series.
    """

    def __init__(self, repository: Path, scratch: Path, kernels: Path):
        self.kernels = kernels
        self.with_commit, self.without = scratch / "with", scratch / "without"
        for tree in (self.with_commit, self.without):
            run_git(repository, "worktree", "add", "--quiet", "--detach", str(tree))
        self.last = run_git(repository, "rev-parse", "HEAD").strip()

    def prove(self, patch: Patch, *, commits_after: int) -> Proof:
        """Run the tests of a patch in both trees.

        Args:
            commits_after: how many commits of the series follow the patch's own.
        """
        commit = f"{self.last}~{commits_after}"
        for tree, revision in (
            (self.with_commit, commit),
            (self.without, f"{commit}~1"),
        ):
            run_git(tree, "checkout", "--quiet", "--force", "--detach", revision)
        run_git(self.without, "checkout", "--quiet", commit, "--", str(TESTS))
        with ThreadPoolExecutor(2) as pool:
            after, before = pool.map(
                lambda tree: _run(tree, patch, self.kernels),
                (self.with_commit, self.without),
            )
        return Proof(
            patch,
            [name for name, passed in after.items() if passed],
            [name for name, passed in after.items() if not passed],
            [name for name, passed in before.items() if passed],
        )


def _run(tree: Path, patch: Patch, kernels: Path) -> dict[str, bool]:
    """Whether each test of the patch passes in a tree; a skipped one does not."""
    report = tree.with_suffix(".xml")
    report.unlink(missing_ok=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SGLANG_", "PYTEST_"))
        and name != "PYTHONDONTWRITEBYTECODE"
    }
    paths = [str(tree / PACKAGE.parent), str(kernels)]
    subprocess.run(
        [
            *(sys.executable, "-c", _PYTEST, *_test_files(tree, patch)),
            *("-q", "-p", "no:cacheprovider", "--rootdir", str(tree)),
            *("-c", os.devnull, f"--junitxml={report}", "-W", "ignore"),
        ],
        cwd=tree,
        env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=(tree.with_suffix(".log")).open("w"),
        stderr=subprocess.STDOUT,
        check=False,
    )
    if not report.exists():
        return {}
    return {
        f"{case.get('classname')}.{case.get('name')}": not len(case)
        for case in ElementTree.parse(report).iter("testcase")
    }


def _test_files(tree: Path, patch: Patch) -> list[str]:
    paths = [tree / TESTS / name for name in patch.tests]
    return [
        str(file)
        for path in paths
        for file in ([path] if path.is_file() else sorted(path.rglob("test_*.py")))
        if file.name.startswith("test_")
    ]
