"""``python -m patches``: list, check, apply or export the series."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from wheel.wheelfile import WheelFile

from fork.errors import BuildError
from fork.fetch import fetch_wheel
from fork.pin import CHOOSING_A_RELEASE, REPOSITORY, read_pin
from fork.tree import KERNELS
from patches.engine.apply import PatchedTree, PatchError, apply_series
from patches.engine.export import Export, run_git, tree_of_wheel
from patches.engine.patch import Patch
from patches.engine.proof import Trees
from patches.releases import check_releases, misfits, resolve_versions, table
from patches.series import load_series


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0 fits, 1 does not."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (BuildError, PatchError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m patches", description=__doc__, epilog=CHOOSING_A_RELEASE
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="one line for each patch")
    listing.set_defaults(run=_list)
    for name, run, text in (
        ("check", _check, "tell whether every patch fits, and change nothing"),
        ("apply", _apply, "change the files of a tree"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument(
            "--tree",
            type=Path,
            required=name == "apply",
            help="folder that holds upstream's sglang package, as a checkout's python/"
            + ("" if name == "apply" else " (default: the pinned wheel)"),
        )
        if name == "check":
            command.add_argument(
                "--upstream",
                nargs="+",
                metavar="VERSION",
                help="releases on the package index to check instead; 0.5.20.. is "
                "0.5.20 and every later one",
            )
        command.set_defaults(run=run)
    exported = commands.add_parser(
        "export", help="write the series for git am, one commit a pull request"
    )
    exported.add_argument(
        "--tree",
        type=Path,
        help="upstream git checkout to export against; it is cloned, not changed "
        "(default: a tree made from the pinned wheel)",
    )
    exported.add_argument(
        "--out", type=Path, default=Path("dist/series"), help="folder for the series"
    )
    exported.add_argument(
        "--check",
        nargs="*",
        type=int,
        metavar="NUMBER",
        help="run each commit's own tests, with it and without it, or those of some "
        "patches; all take half an hour",
    )
    exported.set_defaults(run=_export)
    return parser


def _list(options: argparse.Namespace) -> int:
    for patch in load_series():
        files = len({edit.file for edit in patch.edits})
        print(f"{patch.number:4}  {patch.title}")
        print(f"      {len(patch.edits)} edits in {files} files")
    return 0


def _check(options: argparse.Namespace) -> int:
    if options.upstream:
        return _check_upstream(options.upstream)
    with tempfile.TemporaryDirectory(prefix="sglang-fork-") as scratch:
        tree = options.tree or _unpack_pinned(Path(scratch))
        patched = PatchedTree(tree / "sglang", read_pin().version)
        for patch in load_series():
            files = patched.apply(patch)
            print(f"{patch.number:4}  fits, {len(patch.edits)} edits: {patch.title}")
            for file in files:
                print(f"      {file}")
    return 0


def _check_upstream(asked: list[str]) -> int:
    """Print the table and every misfit; 0 if the fork builds from the last release."""
    name = read_pin().name
    releases = check_releases(name, resolve_versions(name, asked))
    print(table(releases))
    for release in releases:
        for line in misfits(release):
            print(line)
    return 0 if releases[-1].fits else 1


def _apply(options: argparse.Namespace) -> int:
    changed = apply_series(options.tree / "sglang", read_pin().version, load_series())
    print(f"changed {len(changed)} files under {options.tree}")
    return 0


def _export(options: argparse.Namespace) -> int:
    if options.out.exists() and any(options.out.iterdir()):
        print(f"error: {options.out} is not empty", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="sglang-fork-") as scratch:
        repository = Path(scratch) / "repository"
        if options.tree is None:
            tree_of_wheel(_unpack_pinned(Path(scratch)), repository)
        else:
            run_git(
                Path(scratch), "clone", "--quiet", str(options.tree.resolve()),
                str(repository),
            )  # fmt: skip
        export = Export(repository, options.out, REPOSITORY, read_pin().version)
        series = load_series()
        for path in export.run(series):
            print(path)
        if options.check is None:
            return 0
        trees = Trees(repository, Path(scratch) / "trees", KERNELS)
        return _prove(trees, series, set(options.check))


def _prove(trees: Trees, series: list[Patch], asked: set[int]) -> int:
    """Print the proof of each patch, or of those asked for; 0 if all of them hold."""
    status = 0
    for position, patch in enumerate(series):
        if not asked or patch.number in asked:
            proof = trees.prove(patch, commits_after=len(series) - position - 1)
            print(proof, flush=True)
            status |= not proof.holds
    return status


def _unpack_pinned(directory: Path) -> Path:
    pin = read_pin()
    wheel = fetch_wheel(pin, pin.wheel_for_this_interpreter(), directory)
    with WheelFile(wheel) as archive:
        archive.extractall(directory / "tree")
    return directory / "tree"


if __name__ == "__main__":
    sys.exit(main())
