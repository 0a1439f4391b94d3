"""The patches, one module each, in the order of their numbers."""

from __future__ import annotations

import importlib
import itertools
import pkgutil

from patches.engine.patch import Patch


def load_series() -> list[Patch]:
    """Import every module of this package and return its ``PATCH``, in order.

    Raises:
        ValueError: two patches have the same number.
    """
    series = [
        importlib.import_module(f"{__name__}.{module.name}").PATCH
        for module in pkgutil.iter_modules(__path__)
    ]
    series.sort(key=lambda patch: patch.number)
    for one, two in itertools.pairwise(series):
        if one.number == two.number:
            raise ValueError(
                f"two patches have number {one.number}: {one.title}, {two.title}"
            )
    return series
