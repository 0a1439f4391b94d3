"""What a patch is: one upstream pull request, written as named edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst
from packaging.specifiers import SpecifierSet


class EditError(Exception):
    """The place of an edit was not found exactly once, or its code does not parse."""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One change to one upstream file.

    Attributes:
        file: path below the ``sglang`` package, as ``srt/server_args.py``.
        releases: the upstream releases that need the edit, as a version specifier such
            as ``<0.5.23``; every release by default.
    """

    file: str
    releases: str = ""

    def is_for(self, version: str) -> bool:
        """Whether upstream's release ``version`` needs this edit."""
        return SpecifierSet(self.releases).contains(version, prereleases=True)

    def apply(self, module: cst.Module) -> cst.Module:
        """Return the module with this edit made.

        Raises:
            EditError: the place is not found exactly once.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Patch:
    """An ordered set of edits that can be sent upstream as one pull request.

    Attributes:
        number: position in the series; unique.
        title: the pull request's title with upstream's tags, as ``[Fix] …``.
        message: the pull request's text.
        edits: changes to upstream files, in order.
        overlay: paths below ``python/sglang/`` that travel with this patch.
        tests: paths below ``test/registered/`` that travel with this patch.
    """

    number: int
    title: str
    message: str
    edits: Sequence[Edit]
    overlay: Sequence[str] = ()
    tests: Sequence[str] = ()

    def edits_for(self, version: str) -> list[Edit]:
        """Return the edits that upstream's release ``version`` needs, in order."""
        return [edit for edit in self.edits if edit.is_for(version)]
