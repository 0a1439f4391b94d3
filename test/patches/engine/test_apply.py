"""A series changes a tree as a whole or not at all."""

import pytest

from patches.engine.apply import PatchedTree, PatchError, apply_series, with_notice
from patches.engine.edits import Insert, ReplaceExpression
from patches.engine.patch import Patch
from patches.engine.place import Find

VERSION = "9.8.7"


@pytest.fixture
def package(tmp_path):
    (tmp_path / "srt").mkdir()
    (tmp_path / "srt" / "a.py").write_text("x = 1\n")
    (tmp_path / "srt" / "b.py").write_text("#!/usr/bin/python\ny = 1\n")
    return tmp_path


def patch_of(number, *edits):
    return Patch(number=number, title="[Fix] It", message="It.", edits=edits)


def set_value(file, name, value):
    return ReplaceExpression(file=file, at=Find("assign", name), code=value)


def contents(package):
    return {path.name: path.read_text() for path in package.glob("srt/*.py")}


def test_patches_build_on_each_other_and_leave_a_notice(package):
    series = [
        patch_of(3, set_value("srt/a.py", "x", "2"), set_value("srt/b.py", "y", "2")),
        patch_of(5, set_value("srt/a.py", "x", "__original__ + 1")),
    ]
    changed = apply_series(package, VERSION, series)
    assert changed == [package / "srt/a.py", package / "srt/b.py"]
    texts = contents(package)
    assert texts["a.py"].splitlines()[1:] == ["x = 2 + 1"]
    assert "(patches 3, 5); see NOTICE" in texts["a.py"]
    assert texts["b.py"].startswith("#!/usr/bin/python\n# Modified by")


@pytest.mark.parametrize(
    ("edit", "place"),
    [
        (set_value("srt/a.py", "z", "2"), "assign 'z' in the module: found 0 times"),
        (set_value("srt/none.py", "x", "2"), "there is no such file"),
        (Insert(file="srt/a.py", after="main", code="pass"), "definition 'main'"),
        (set_value("srt/a.py", "x", "2 +"), "does not parse"),
    ],
)
def test_a_patch_that_does_not_fit_names_itself_and_writes_nothing(
    package, edit, place
):
    before = contents(package)
    fitting = patch_of(1, set_value("srt/b.py", "y", "2"))
    with pytest.raises(PatchError) as caught:
        apply_series(package, VERSION, [fitting, patch_of(42, edit)])
    message = str(caught.value)
    for part in ("patch 42", "[Fix] It", VERSION, f"sglang/{edit.file}", place):
        assert part in message
    assert contents(package) == before


def test_a_place_that_is_there_twice_is_an_error(package):
    (package / "srt" / "a.py").write_text("x = 1\nx = 2\n")
    tree = PatchedTree(package, VERSION)
    with pytest.raises(PatchError, match="found 2 times, expected once"):
        tree.apply(patch_of(1, set_value("srt/a.py", "x", "3")))


def test_a_file_is_reported_once_for_each_patch(package):
    tree = PatchedTree(package, VERSION)
    patch = patch_of(
        1, set_value("srt/a.py", "x", "2"), set_value("srt/a.py", "x", "3")
    )
    assert tree.apply(patch) == ["srt/a.py"]
    assert tree.files["srt/a.py"].text == "x = 3\n"


def test_the_notice_goes_below_an_interpreter_line():
    assert with_notice("#!/bin/x\ny\n", [1]).splitlines()[0] == "#!/bin/x"
    assert with_notice("y\n", [1, 2]).splitlines()[1] == "y"
