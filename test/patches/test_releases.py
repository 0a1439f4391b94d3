"""``patches check --upstream``: what it says of a release and of upstream's edits."""

from __future__ import annotations

from pathlib import Path

import pytest

from fork.errors import BuildError
from fork.fetch import fetch_release
from fork.pin import read_pin, read_pins
from patches.engine.apply import PatchedTree
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
from patches.engine.fit import Fit, fit_series
from patches.engine.patch import Edit, Patch
from patches.engine.place import Find
from patches.releases import (
    ReleaseFit,
    check_releases,
    misfits,
    resolve_versions,
    table,
)
from patches.series import load_series

SOURCE = """
from a import b
NAMES = ["EAGLE"]
class Worker:
    def run(self, count):
        width = 1
        if count > width:
            step(count, width=width)
        return name == "EAGLE"
"""
EDITS = (
    AddImport(file="f.py", module="a", names=("c",)),
    ExtendCollection(file="f.py", at=Find("assign", "NAMES"), code='"NGRAM"'),
    Insert(
        file="f.py",
        scope="Worker.run",
        after=Find("assign", "width"),
        code="depth = 2",
    ),
    ReplaceExpression(
        file="f.py", scope="Worker.run", at=Find("if"), code="count > width + 1"
    ),
    AddArgument(
        file="f.py", scope="Worker.run", at=Find("call", "step"), code="depth=depth"
    ),
    RemoveArgument(
        file="f.py", scope="Worker.run", at=Find("call", "step"), name="width"
    ),
    AddArgument(file="f.py", scope="Worker", at="run", code="limit=None"),
    AdmitMember(file="f.py", scope="Worker.run", like="EAGLE", new="NEXTN", sites=1),
    ReplaceStatement(
        file="f.py", scope="Worker.run", at=Find("assign", "width"), code="width = 3"
    ),
    ReplaceBody(file="f.py", function="Worker.run", code="return 4"),
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "f.py").write_text(SOURCE)
    return tmp_path


def patch_of(*edits: Edit) -> Patch:
    return Patch(number=7, title="[Fix] It", message="It.", edits=edits)


def fit(package: Path, *edits: Edit, version: str = "1.0") -> list[Fit]:
    (patch,) = fit_series(package, version, [patch_of(*edits)])
    return [edit.fit for edit in patch.edits]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: type(edit).__name__)
def test_an_edit_fits_until_upstream_has_done_the_same(
    package: Path, edit: Edit
) -> None:
    assert fit(package, edit) == [Fit.FITS]
    tree = PatchedTree(package, "1.0")
    tree.apply(patch_of(edit))
    (package / "f.py").write_text(tree.files["f.py"].text)
    assert fit(package, edit) == [Fit.PRESENT]


def test_an_edit_whose_place_is_gone_has_moved_and_the_next_is_tried(
    package: Path,
) -> None:
    gone = ReplaceBody(file="f.py", function="Worker.stop", code="return 5")
    absent = ReplaceBody(file="g.py", function="Worker.run", code="return 5")
    assert fit(package, gone, absent, EDITS[0]) == [Fit.MOVED, Fit.MOVED, Fit.FITS]


def test_an_edit_for_other_releases_is_left_out(package: Path) -> None:
    new = AddImport(file="f.py", module="a", names=("c",), releases=">=2.0")
    assert fit(package, new) == []
    assert fit(package, new, version="2.0") == [Fit.FITS]
    tree = PatchedTree(package, "1.0")
    assert tree.apply(patch_of(new)) == []


def test_every_pinned_release_builds_and_the_table_shows_the_older_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    releases = check_releases("sglang", resolve_versions("sglang", ["0.5.20.."]))
    shown = table(releases)
    with capsys.disabled():
        print(f"\n{shown}")
    assert len(shown.splitlines()) == len(load_series()) + 3
    by_version = {release.version: release for release in releases}
    assert {"0.5.20", "0.5.21", "0.5.22", "0.5.23"} <= by_version.keys()
    for pin in read_pins():
        assert list(misfits(by_version.pop(pin.version))) == []
    for release in by_version.values():
        assert release.fits == (list(misfits(release)) == [])


def test_a_release_with_a_moved_place_does_not_build(package: Path) -> None:
    gone = ReplaceBody(file="f.py", function="Worker.stop", code="return 5")
    fits = fit_series(package, "1.0", [patch_of(EDITS[0], gone)])
    release = ReleaseFit("1.0", tuple(fits))
    assert not release.fits
    assert "| 7 [Fix] It | 1 of 2 moved |" in table([release])
    (line,) = misfits(release)
    assert line.startswith("1.0 patch 7: f.py: ReplaceBody: definition 'Worker.stop'")


def test_a_range_of_releases_is_what_the_index_has() -> None:
    version = read_pin().version
    assert version in resolve_versions("sglang", ["0.5.20.."])
    assert resolve_versions("sglang", [version, version]) == [version]


def test_a_release_that_the_index_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"sglang 0\.0\.7"):
        fetch_release("sglang", "0.0.7", tmp_path)
