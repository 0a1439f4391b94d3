"""No upstream release may rewrite a setting at a place that nobody looked at."""

from __future__ import annotations

import ast
import importlib.util
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from rewrites import Rewrite, find_rewrites, scopes_that_call

from fork.pin import read_pin

REVIEW = Path(__file__).with_name("reviewed_rewrites.toml")
DOORS = ("report_late_remap", "overwriter", "get_context().override")


@pytest.fixture(scope="module")
def review() -> dict[str, dict[str, str]]:
    """What was decided about each place that the release under test has."""
    tables = tomllib.loads(REVIEW.read_text())
    version = read_pin().version
    decided = [tables] + [
        tables_of_some
        for releases, tables_of_some in tables["releases"].items()
        if SpecifierSet(releases).contains(version, prereleases=True)
    ]
    return {
        kind: {name: why for some in decided for name, why in some[kind].items()}
        for kind in ("reported", "reviewed")
    }


@pytest.fixture(scope="module")
def found(upstream_tree: Path) -> dict[str, Rewrite]:
    return {
        str(rewrite): rewrite for rewrite in find_rewrites(upstream_tree / "sglang")
    }


def fork_package() -> Path:
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def no_remaps() -> set[str]:
    """The sources of ``RuntimeContext.override`` that the door leaves out."""
    door = fork_package() / "srt/arg_groups/remap/late.py"
    for node in ast.parse(door.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NO_REMAPS":
            return set(ast.literal_eval(node.value))
    raise AssertionError("late.py has no NO_REMAPS")


def test_every_place_is_reported_or_reviewed(found, review) -> None:
    unknown = sorted(
        found.keys() - review["reported"].keys() - review["reviewed"].keys()
    )
    assert unknown == [], (
        "upstream rewrites settings here; report them through "
        "sglang.srt.arg_groups.remap.late, or give the reason why not in "
        f"{REVIEW.name}"
    )


def test_the_review_lists_no_place_that_is_gone(found, review) -> None:
    assert sorted({*review["reported"], *review["reviewed"]} - found.keys()) == []


def test_every_reviewed_place_has_a_reason(review) -> None:
    assert all(len(reason.split()) > 2 for reason in review["reviewed"].values())


def test_every_reported_place_goes_through_the_door(found, review) -> None:
    for name in review["reported"]:
        place = found[name]
        if place.target.startswith("override "):
            continue
        assert place.scope in scopes_that_call(fork_package(), place.file, DOORS), name


def test_the_runtime_context_is_a_door(found, review) -> None:
    scopes = scopes_that_call(
        fork_package(), "srt/runtime_context.py", ("report_overrides",)
    )
    assert scopes == {"RuntimeContext.override"}
    reviewed = {
        ast.literal_eval(found[name].target.removeprefix("override "))
        for name in review["reviewed"]
        if found[name].target.startswith("override ")
    }
    assert reviewed == no_remaps()


def test_a_new_rewrite_is_found(tmp_path: Path) -> None:
    fields = tmp_path / "srt/arg_groups/fields/memory.py"
    fields.parent.mkdir(parents=True)
    fields.write_text("class Memory:\n    page_size: A[int, 'Tokens a page.'] = 1\n")
    (tmp_path / "launch_server.py").write_text("")
    (tmp_path / "srt/pool.py").write_text(
        "def on_record(server_args):\n"
        "    server_args.page_size = 1\n"
        "def on_local():\n"
        "    size = get_memory().page_size\n"
        "    if size > 1:\n"
        "        size = 1\n"
        "def on_context():\n"
        "    get_context().override('pool.size', page_size=1)\n"
        "def on_variable():\n"
        "    envs.SGLANG_PAGES.set(1)\n"
        "def reads_only():\n"
        "    size = get_memory().page_size\n"
    )
    assert {(place.scope, place.target) for place in find_rewrites(tmp_path)} == {
        ("on_record", "server_args.page_size"),
        ("on_local", "size"),
        ("on_context", "override 'pool.size'"),
        ("on_variable", "envs.SGLANG_PAGES.set"),
    }
