"""Applies a series of patches to a source tree: everything, or nothing at all."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from patches.engine.formatting import format_files
from patches.engine.patch import Edit, EditError, Patch

NOTICE_START = "# Modified by the NEXTN fork of SGLang"


class PatchError(Exception):
    """A patch does not fit the tree; nothing was written."""


@dataclass
class PatchedFile:
    """An upstream file with the edits of the patches so far.

    Attributes:
        patches: numbers of the patches that changed it, in order.
    """

    module: cst.Module
    patches: list[int] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.module.code


class PatchedTree:
    """The files of an upstream ``sglang`` package as patches change them, in memory.

    Args:
        package: the ``sglang`` folder of the upstream tree, or of a wheel.
        version: the upstream version, for messages.
    """

    def __init__(self, package: Path | zipfile.Path, version: str):
        self.package = package
        self.version = version
        self.files: dict[str, PatchedFile] = {}

    def apply(self, patch: Patch) -> list[str]:
        """Apply one patch and return the files it changed, in order.

        Raises:
            PatchError: naming the patch, the file, the place and the version.
        """
        edits = patch.edits_for(self.version)
        for edit in edits:
            try:
                patched = self.file(edit.file)
                patched.module = edit.apply(patched.module)
            except EditError as error:
                raise PatchError(self._message(patch, edit, str(error))) from error
            if patch.number not in patched.patches:
                patched.patches.append(patch.number)
        return list(dict.fromkeys(edit.file for edit in edits))

    def file(self, name: str) -> PatchedFile:
        """Return a file of the package, read when it is first asked for.

        Raises:
            EditError: upstream has no such file.
        """
        if name not in self.files:
            path = self.package / name
            if not path.is_file():
                raise EditError("there is no such file")
            self.files[name] = PatchedFile(cst.parse_module(path.read_bytes()))
        return self.files[name]

    def _message(self, patch: Patch, edit: Edit, reason: str) -> str:
        return (
            f"patch {patch.number} ({patch.title}) does not fit sglang "
            f"{self.version}: sglang/{edit.file}: {type(edit).__name__}: {reason}"
        )


def apply_series(package: Path, version: str, series: Sequence[Patch]) -> list[Path]:
    """Apply every patch to the tree on disk and return the files changed.

    Each changed file gets a notice line, as the Apache licence asks (section 4b).

    Raises:
        PatchError: a patch does not fit; no file was written.
    """
    tree = PatchedTree(package, version)
    for patch in series:
        tree.apply(patch)
    formatted = format_files({name: file.text for name, file in tree.files.items()})
    for name, text in formatted.items():
        (package / name).write_text(with_notice(text, tree.files[name].patches))
    return [package / name for name in formatted]


def with_notice(text: str, numbers: Sequence[int]) -> str:
    """Put the notice of modification at the top, below a ``#!`` line."""
    listed = ", ".join(map(str, numbers))
    notice = f"{NOTICE_START} (patches {listed}); see NOTICE.\n"
    if text.startswith("#!"):
        first, rest = text.split("\n", 1)
        return f"{first}\n{notice}{rest}"
    return notice + text
