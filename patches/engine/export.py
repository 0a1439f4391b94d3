"""Writes the series as a ``git format-patch`` mailbox against an upstream tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patches.engine.apply import PatchedTree
from patches.engine.formatting import format_files
from patches.engine.patch import Patch
from patches.engine.pull_request import pull_request_text

# Upstream keeps its package below python/ and its tests below test/registered/, and
# ours have the same places.
PACKAGE = Path("python/sglang")
TESTS = Path("test/registered")
AUTHOR = "NEXTN fork of SGLang <nextn@localhost>"
# One fixed time, so that the same series gives the same commits.
DATE = "2000-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class Export:
    """A work tree at upstream's state and the folder for the mailbox.

    Attributes:
        repository: git work tree that the commits are made in; it is changed.
        out: folder for the ``NNNN-title.patch`` files.
        ours: our repository, whose overlay and tests travel with the patches.
        version: upstream's version, for messages.
    """

    repository: Path
    out: Path
    ours: Path
    version: str

    def run(self, series: Sequence[Patch]) -> list[Path]:
        """Commit each patch with its overlay and tests, and write the mailbox.

        Returns the files, in order.

        Raises:
            PatchError: a patch does not fit; the commits before it were made.
            CalledProcessError: git refused.
        """
        start = self._git("rev-parse", "HEAD").strip()
        tree = PatchedTree(self.repository / PACKAGE, self.version)
        for patch in series:
            self._commit(patch, tree)
        self.out.mkdir(parents=True, exist_ok=True)
        listed = self._git(
            "format-patch", "--quiet", "--zero-commit", "--no-signature",
            "--output-directory", str(self.out.resolve()), start,
        )  # fmt: skip
        assert not listed
        return sorted(self.out.glob("*.patch"))

    def _commit(self, patch: Patch, tree: PatchedTree) -> None:
        changed = tree.apply(patch)
        texts = {name: tree.files[name].text for name in changed}
        for name, text in format_files(texts).items():
            (self.repository / PACKAGE / name).write_text(text)
        for name in patch.overlay:
            self._place(PACKAGE / name)
        for name in patch.tests:
            self._place(TESTS / name)
        self._git("add", "--all", "--force")
        message = f"{patch.title}\n\n{pull_request_text(patch)}"
        self._git("commit", "--quiet", "--cleanup=verbatim", "--message", message)

    def _place(self, name: Path) -> None:
        """Copy our file or folder ``name`` to the same place of the work tree."""
        source, target = self.ours / name, self.repository / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def _git(self, *arguments: str) -> str:
        return run_git(self.repository, *arguments)


def run_git(directory: Path, *arguments: str) -> str:
    """Run git in a folder, untouched by the user's configuration, and return stdout."""
    name, address = AUTHOR.removesuffix(">").split(" <")
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": address,
        "GIT_AUTHOR_DATE": DATE,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": address,
        "GIT_COMMITTER_DATE": DATE,
    }
    result = subprocess.run(
        ["git", *arguments],
        cwd=directory,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return result.stdout


def tree_of_wheel(unpacked: Path, repository: Path) -> None:
    """Make a git work tree in upstream's layout from an unpacked wheel."""
    (repository / PACKAGE).parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(unpacked / "sglang", repository / PACKAGE)
    run_git(repository, "init", "--quiet", "--initial-branch=main")
    run_git(repository, "add", "--all", "--force")
    run_git(repository, "commit", "--quiet", "--message", "Upstream")
