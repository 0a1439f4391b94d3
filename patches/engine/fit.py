"""How a series fits an upstream release: edit by edit, whatever does not fit."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from patches.engine.apply import PatchedTree
from patches.engine.patch import Edit, EditError, Patch
from patches.engine.presence import is_present


class Fit(Enum):
    """What became of an edit's place."""

    FITS = "fits"
    PRESENT = "in upstream"
    MOVED = "moved"


@dataclass(frozen=True)
class EditFit:
    """One edit on one release.

    Attributes:
        reason: why the place was not found; empty if it was.
    """

    edit: Edit
    fit: Fit
    reason: str = ""


@dataclass(frozen=True)
class PatchFit:
    """One patch on one release; ``edits`` are those that the release needs."""

    patch: Patch
    edits: tuple[EditFit, ...]

    def __str__(self) -> str:
        """``fits``, or the numbers: ``3 of 9 moved``, ``2 of 9 in upstream``."""
        counts = Counter(edit.fit for edit in self.edits)
        if counts[Fit.FITS] == len(self.edits):
            return "fits"
        if counts[Fit.PRESENT] == len(self.edits):
            return "in upstream"
        total = len(self.edits)
        return ", ".join(
            f"{counts[fit]} of {total} {fit.value}"
            for fit in (Fit.MOVED, Fit.PRESENT)
            if counts[fit]
        )


def fit_series(
    package: Path | zipfile.Path, version: str, series: Sequence[Patch]
) -> list[PatchFit]:
    """Try every edit in order; one that does not fit is left out and told.

    Args:
        package: the ``sglang`` folder of the release; nothing is written to it.
    """
    tree = PatchedTree(package, version)
    return [
        PatchFit(
            patch, tuple(_fit_edit(tree, edit) for edit in patch.edits_for(version))
        )
        for patch in series
    ]


def _fit_edit(tree: PatchedTree, edit: Edit) -> EditFit:
    try:
        patched = tree.file(edit.file)
    except EditError as error:
        return EditFit(edit, Fit.MOVED, str(error))
    if is_present(edit, patched.module):
        return EditFit(edit, Fit.PRESENT)
    try:
        patched.module = edit.apply(patched.module)
    except EditError as error:
        return EditFit(edit, Fit.MOVED, str(error))
    return EditFit(edit, Fit.FITS)
