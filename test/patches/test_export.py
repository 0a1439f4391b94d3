"""The exported series applies with ``git am`` and gives the fork's own files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from ruff import find_ruff_bin

from fork.pin import REPOSITORY, read_pin
from fork.tree import OVERLAY
from patches.engine.apply import NOTICE_START, apply_series
from patches.engine.export import PACKAGE, TESTS, Export, run_git, tree_of_wheel
from patches.engine.patch import Patch
from patches.engine.pull_request import SECTIONS, pull_request_text
from patches.series import load_series

# isort sorts this file otherwise than upstream's linter has it.
UNSORTED_UPSTREAM = "multimodal/processors/ernie45_vl.py"


@dataclass(frozen=True)
class Exported:
    upstream: Path
    files: list[Path]
    applied: Path


@pytest.fixture(scope="module")
def exported(upstream_tree: Path, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("export")
    shutil.copytree(upstream_tree, folder / "upstream")
    for name in ("exported", "applied"):
        tree_of_wheel(folder / "upstream", folder / name)
    version = read_pin().version
    export = Export(folder / "exported", folder / "series", REPOSITORY, version)
    files = export.run(load_series())
    am = ("am", "--quiet", "--keep-non-patch")
    run_git(folder / "applied", *am, *map(str, files))
    return Exported(folder / "upstream", files, folder / "applied")


def test_there_is_one_commit_for_each_patch(exported: Exported):
    subjects = run_git(exported.applied, "log", "--reverse", "--format=%s")
    assert subjects.splitlines()[1:] == [patch.title for patch in load_series()]


def test_the_tree_after_the_last_commit_is_the_forks(exported: Exported):
    package = exported.upstream / "sglang"
    apply_series(package, read_pin().version, load_series())
    for path in sorted(package.rglob("*.py")):
        text = path.read_text()
        if NOTICE_START in text:
            lines = text.splitlines(keepends=True)
            text = "".join(x for x in lines if not x.startswith(NOTICE_START))
        name = path.relative_to(package)
        assert (exported.applied / PACKAGE / name).read_text() == text, name


def test_upstreams_linter_finds_nothing_in_any_file_that_the_series_changes(
    exported: Exported,
):
    upstream = run_git(exported.applied, "rev-list", "--max-parents=0", "HEAD").strip()
    names = run_git(exported.applied, "diff", "--name-only", upstream).split()
    assert len(names) > 100
    done = subprocess.run(
        [
            *(find_ruff_bin(), "check", "--isolated", "--no-cache", "--quiet"),
            *("--select", "F401,F821", "--output-format", "concise", *names),
        ],
        cwd=exported.applied,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    imports = [name for name in names if name.startswith(str(PACKAGE))]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "isort", "--check", "--profile", "black"),
            *("--project", "sglang", "--settings-path", "/dev/null", *imports),
        ],
        cwd=exported.applied,
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = [line for line in done.stderr.splitlines() if UNSORTED_UPSTREAM not in line]
    assert not wrong


def test_every_overlay_file_travels_with_exactly_one_patch(exported: Exported):
    ours = {
        str(path.relative_to(OVERLAY / "sglang"))
        for path in (OVERLAY / "sglang").rglob("*.py")
    }
    carried = [
        name
        for patch in load_series()
        for place in patch.overlay
        for name in ours
        if name == place or name.startswith(f"{place}/")
    ]
    assert sorted(carried) == sorted(ours)


def test_every_upstream_test_travels_with_exactly_one_patch():
    root = REPOSITORY / TESTS
    ours = {str(path.relative_to(root)) for path in root.rglob("*.py")}
    carried = [
        name
        for patch in load_series()
        for place in patch.tests
        for name in ours
        if name == place or name.startswith(f"{place}/")
    ]
    assert sorted(carried) == sorted(ours)


@pytest.mark.parametrize("patch", load_series(), ids=lambda patch: str(patch.number))
def test_every_patch_has_tests_of_its_own(patch: Patch):
    files = [REPOSITORY / TESTS / name for name in patch.tests]
    assert files
    assert all(file.exists() for file in files)


def test_every_upstream_test_is_registered_and_runs_by_itself():
    for path in (REPOSITORY / TESTS).rglob("test_*.py"):
        text = path.read_text()
        assert "\nregister_cpu_ci(est_time=" in text, path
        assert "(CustomTestCase):\n" in text, path
        assert text.endswith('\n\nif __name__ == "__main__":\n    unittest.main()\n'), (
            path
        )


@pytest.mark.parametrize("patch", load_series(), ids=lambda patch: str(patch.number))
def test_the_text_has_every_section_and_says_what_ran(patch: Patch):
    text = pull_request_text(patch)
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings == list(SECTIONS)
    assert "GPU" in text.split("## Checklist")[1]
    # git am ends a message at such a line.
    assert not any(
        line.startswith(("---", "diff -", "Index: ")) for line in text.splitlines()
    )


def test_a_text_without_motivation_is_an_error_that_names_the_patch():
    patch = Patch(number=7, title="[Fix] A", message="Only words.\n", edits=())
    with pytest.raises(ValueError, match=r"patch 7 \(\[Fix\] A\).*Motivation"):
        pull_request_text(patch)


def test_no_commit_carries_a_notice_of_the_fork(exported: Exported):
    assert all(NOTICE_START not in file.read_text() for file in exported.files)
