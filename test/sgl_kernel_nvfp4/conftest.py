"""Paths and markers of the NVFP4 kernel tests."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT / "sgl-kernel", ROOT / "test"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "exhaustive: every M on many shapes; minutes. Runs with `-m exhaustive` only.",
    )


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    if "exhaustive" in config.getoption("markexpr"):
        return
    skip = pytest.mark.skip(reason="run with -m exhaustive")
    for item in items:
        if "exhaustive" in item.keywords:
            item.add_marker(skip)
