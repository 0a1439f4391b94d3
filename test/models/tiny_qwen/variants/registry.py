"""The registry of variants: what each one is, and what a loader owes it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Build = Callable[[Path, Path], None]


@dataclass(frozen=True)
class Variant:
    """One way to write the trained checkpoint.

    Attributes:
        build: `build(source, out)` reads the trained dense checkpoint in `source` and
            writes the variant into the folder `out`.
        valid: True if NEXTN must serve it, False if it must be refused with an error.
        twin: name of a variant that gives the same tokens and the same acceptance
            ("dense" is the source itself); None if there is none.
        error_names: words that an error about this variant must contain.
    """

    name: str
    build: Build
    valid: bool
    twin: str | None = None
    error_names: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        return (self.build.__doc__ or "").strip().splitlines()[0]


VARIANTS: dict[str, Variant] = {}


def valid(twin: str | None = None) -> Callable[[Build], Build]:
    """Register a checkpoint that is odd and must be served."""

    def register(build: Build) -> Build:
        name = build.__name__
        VARIANTS[name] = Variant(name, build, valid=True, twin=twin)
        return build

    return register


def broken(*error_names: str) -> Callable[[Build], Build]:
    """Register a checkpoint that must be refused; the error names `error_names`."""

    def register(build: Build) -> Build:
        name = build.__name__
        VARIANTS[name] = Variant(name, build, valid=False, error_names=error_names)
        return build

    return register
