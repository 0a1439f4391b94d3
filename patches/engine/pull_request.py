"""The text of a pull request, in the sections that upstream's template asks for."""

from __future__ import annotations

import re

from patches.engine.patch import Patch

SECTIONS = (
    "Motivation",
    "Modifications",
    "Accuracy Tests",
    "Benchmark and Profiling",
    "Checklist",
)
DEFAULTS = {
    "Accuracy Tests": "None beyond the unit tests: no output is meant to change.",
    "Benchmark and Profiling": "None: nothing here is meant to make anything faster.",
}
_HEADING = re.compile(r"^## (.+)\n+", re.MULTILINE)


def pull_request_text(patch: Patch) -> str:
    """Return the patch's message with the sections that it leaves to us.

    Raises:
        ValueError: the message lacks motivation or modifications, or has a section
            that upstream's template does not have.
    """
    start, *parts = _HEADING.split(patch.message)
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    written = {"Checklist": checklist(patch), **DEFAULTS, **texts}
    if start.strip() or sorted(written) != sorted(SECTIONS):
        raise ValueError(
            f"the message of patch {patch.number} ({patch.title}) has the sections "
            f"{', '.join(texts) or 'none'}; it needs {', '.join(SECTIONS[:2])}, may "
            f"have {', '.join(DEFAULTS)}, and has no text before them"
        )
    return "\n".join(f"## {name}\n\n{written[name].strip()}\n" for name in SECTIONS)


def checklist(patch: Patch) -> str:
    """What was done for every pull request of the series, and what was not."""
    tests = "\n".join(f"  - `test/registered/{name}`" for name in patch.tests)
    return f"""\
- [x] black, isort, ruff (F401, F821) and codespell find nothing in the added files.
- [x] CPU unit tests, which fail without this commit and pass with it:
{tests}
- [ ] Run on a GPU: nothing of this commit was, neither for numbers nor for speed."""
