"""Writes docs/tables.md from the registries that the code decides by.

    .venv/bin/python docs/tables.py

A test fails when the file is not what this script writes.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import dedent

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "tables.md"
sys.path.insert(0, str(REPOSITORY))

from patches.engine.edits import ExtendCollection, Insert  # noqa: E402
from patches.series import load_series  # noqa: E402

CHOICES = "srt/arg_groups/choices.py"
FIELDS = "srt/arg_groups/fields/"

Row = tuple[str, ...]


def page() -> str:
    """Return the whole of docs/tables.md."""
    sections = (
        (
            "Models",
            "Target architectures whose checkpoint has an MTP head that SGLang knows. "
            "NEXTN is native where a test proves it; the others here run as EAGLE, "
            "with one WARNING that gives the reason. A model that is not here is "
            "refused, unless a draft path is given.",
            ("architecture", "NEXTN", "why not native"),
            models(),
        ),
        (
            "Rounds",
            "A native server decodes in the chain round "
            "(`speculative/nextn/chain_round.py`) unless one of these holds; then the "
            "round is upstream's own, inherited, with the native head in it. Single "
            "batches go there as well: idle ones, beam search, HiSparse, expert "
            "recording (`batch_takes_chain_round`).",
            ("the general round is taken when",),
            rounds(),
        ),
        (
            "Flags",
            "What the fork adds to `sglang.launch_server`.",
            ("flag", "values", "meaning"),
            flags(),
        ),
        (
            "Reasons of remaps",
            "What a WARNING says where upstream's rule carries no reason. A rule that "
            "is not here is named by itself.",
            ("rule", "setting", "why", "what keeps the asked value"),
            reasons(),
        ),
        (
            "Patches",
            "The series, in order; each row is one pull request.",
            ("number", "title", "edits", "files", "new modules"),
            patches(),
        ),
    )
    head = (
        "# Tables\n\nWritten by `python docs/tables.py` from the code; do not edit.\n"
    )
    return head + "".join(
        f"\n## {title}\n\n{text}\n\n{table(columns, rows)}\n"
        for title, text, columns, rows in sections
    )


def models() -> Iterator[Row]:
    from sglang.srt.speculative.nextn.architectures import ARCHITECTURES

    ordered = sorted(ARCHITECTURES.values(), key=lambda row: (not row.native, row.name))
    for row in ordered:
        yield f"`{row.name}`", "native" if row.native else "as EAGLE", row.reason


def rounds() -> Iterator[Row]:
    from sglang.srt.speculative.nextn.chain_guards import SERVER_GUARDS

    yield from ((reason,) for reason in SERVER_GUARDS)


def flags() -> Iterator[Row]:
    yield (
        "`--speculative-algorithm`",
        "`NEXTN`",
        "draft with the MTP head of the target's own checkpoint",
    )
    for patch in load_series():
        for edit in patch.edits:
            if isinstance(edit, Insert) and edit.file.startswith(FIELDS):
                yield from _fields(edit.code)
            elif isinstance(edit, ExtendCollection) and edit.file == CHOICES:
                flag = _flag_of(str(edit.at.name))
                yield f"`{flag}`", f"`{ast.literal_eval(edit.code)}`", patch.title


def reasons() -> Iterator[Row]:
    from sglang.srt.arg_groups.remap.reasons import REASONS

    for key, reason in REASONS.items():
        rule, *setting = (key,) if isinstance(key, str) else key
        where = " = ".join(f"`{part}`" for part in setting)
        yield f"`{rule}`", where, reason.why, reason.keep or ""


def patches() -> Iterator[Row]:
    for patch in load_series():
        files = len({edit.file for edit in patch.edits})
        new = ", ".join(f"`{name}`" for name in patch.overlay)
        yield str(patch.number), patch.title, str(len(patch.edits)), str(files), new


def table(columns: Row, rows: Iterable[Row]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
        for line in lines
    )


def _fields(code: str) -> Iterator[Row]:
    """Read the fields that an edit declares as ``name: A[type, Arg(…)] = default``."""
    for node in ast.parse(dedent(code)).body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(
            node.annotation, ast.Subscript
        ):
            continue
        assert isinstance(node.annotation.slice, ast.Tuple)
        call = node.annotation.slice.elts[1]
        assert isinstance(call, ast.Call)
        given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        flag = _flag(node)
        choices = ", ".join(f"`{choice}`" for choice in given.get("choices", ()))
        yield f"`{flag}`", choices, given["help"]


def _flag_of(collection: str) -> str:
    """Return the flag whose choices are in a collection of upstream's choices.py."""
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.origin is not None
    for path in sorted((Path(spec.origin).parent / FIELDS).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AnnAssign) and any(
                isinstance(part, ast.Name) and part.id == collection
                for part in ast.walk(node.annotation)
            ):
                return _flag(node)
    raise LookupError(f"no flag takes its choices from {collection}")


def _flag(field: ast.AnnAssign) -> str:
    """Return the command line's name of a field."""
    for node in ast.walk(field.annotation):
        if isinstance(node, ast.keyword) and node.arg == "cli_name":
            return str(ast.literal_eval(node.value))
    return "--" + ast.unparse(field.target).replace("_", "-")


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
