"""``patches check --upstream``: which edits still fit which release of SGLang."""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from fork.fetch import LOCAL_WHEEL_VARIABLE, fetch_release, list_releases
from patches.engine.fit import Fit, PatchFit, fit_series
from patches.series import load_series


@dataclass(frozen=True)
class ReleaseFit:
    """The whole series on one release."""

    version: str
    patches: tuple[PatchFit, ...]

    @property
    def fits(self) -> bool:
        """Whether the fork can be built from this release."""
        edits = (edit for patch in self.patches for edit in patch.edits)
        return all(edit.fit is Fit.FITS for edit in edits)


def resolve_versions(name: str, asked: Sequence[str]) -> list[str]:
    """Return the releases that were asked for; ``0.5.20..`` is that and all later ones.

    Raises:
        BuildError: the index cannot say which are later.
    """
    versions: list[str] = []
    for item in asked:
        if not item.endswith(".."):
            versions.append(item)
            continue
        first = Version(item.removesuffix(".."))
        listed = [str(version) for version in list_releases(name) if version >= first]
        versions += listed
    return list(dict.fromkeys(versions))


def check_releases(name: str, versions: Sequence[str]) -> list[ReleaseFit]:
    """Fetch each release and try the series on it, as many at once as there are cores.

    Raises:
        BuildError: a release is not to be had.
    """
    with tempfile.TemporaryDirectory(prefix="sglang-fork-") as scratch:
        wheels = [_wheel(name, version, Path(scratch)) for version in versions]
        workers = min(len(versions), os.cpu_count() or 1)
        with ProcessPoolExecutor(workers) as pool:
            return list(pool.map(_check, versions, wheels))


def _wheel(name: str, version: str, directory: Path) -> Path:
    local = os.environ.get(LOCAL_WHEEL_VARIABLE)
    if local and Path(local).is_dir():
        tag = f"cp3{sys.version_info.minor}"
        found = sorted(Path(local).glob(f"{name}-{version}-{tag}-*.whl"))
        if found:
            return found[0]
    return fetch_release(name, version, directory)


def _check(version: str, wheel: Path) -> ReleaseFit:
    with zipfile.ZipFile(wheel) as archive:
        package = zipfile.Path(archive, "sglang/")
        return ReleaseFit(version, tuple(fit_series(package, version, load_series())))


def table(releases: Sequence[ReleaseFit]) -> str:
    """Return a Markdown table: a row for each patch, a column for each release."""
    head = ["patch", *(release.version for release in releases)]
    rows = [
        [f"{fits[0].patch.number} {fits[0].patch.title}", *map(str, fits)]
        for fits in zip(*(release.patches for release in releases), strict=True)
    ]
    builds = ["builds" if release.fits else "does not build" for release in releases]
    rows.append(["**the fork**", *builds])
    return "\n".join(
        f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)
    )


def misfits(release: ReleaseFit) -> Iterable[str]:
    """Yield a line for each edit of a release that does not find its place as it is."""
    for patch in release.patches:
        for edit in patch.edits:
            if edit.fit is Fit.FITS:
                continue
            what = f"{edit.edit.file}: {type(edit.edit).__name__}"
            why = edit.reason or edit.fit.value
            yield f"{release.version} patch {patch.patch.number}: {what}: {why}"
