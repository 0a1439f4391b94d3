"""After each commit of the series its own tests pass; without it none of them does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fork.pin import REPOSITORY, read_pin
from fork.tree import KERNELS
from patches.engine.export import Export, tree_of_wheel
from patches.engine.proof import Trees
from patches.series import load_series


@pytest.mark.exhaustive
@pytest.mark.timeout(4 * 3600)
def test_each_commit_passes_its_own_tests_and_they_fail_without_it(
    upstream_tree: Path, tmp_path: Path
) -> None:
    tree_of_wheel(upstream_tree, tmp_path / "repository")
    export = Export(
        tmp_path / "repository", tmp_path / "series", REPOSITORY, read_pin().version
    )
    series = load_series()
    export.run(series)
    trees = Trees(tmp_path / "repository", tmp_path / "trees", KERNELS)
    proofs = [
        trees.prove(patch, commits_after=len(series) - position - 1)
        for position, patch in enumerate(series)
    ]
    wrong = [str(proof) for proof in proofs if not proof.holds]
    assert not wrong, "\n".join(wrong)
    shutil.rmtree(tmp_path)
