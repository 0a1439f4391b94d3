"""Fixtures for the whole suite, and its order: fast tests first, then servers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version
from wheel.wheelfile import WheelFile

from fork.fetch import LOCAL_WHEEL_VARIABLE, fetch_wheel
from fork.pin import REPOSITORY, read_pin
from harness.models import DENSE_MODEL, build_variant
from harness.pool import ServerPool

# No test may need a model hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Tests of names that an older upstream release does not have.
NOT_BEFORE = {
    "test_eagle_worker_seams.py": Version("0.5.23"),
    "test_verify_sampling_on_cpu.py": Version("0.5.23"),
}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what the release under test does not have."""
    first = NOT_BEFORE.get(collection_path.name)
    return True if first is not None and Version(read_pin().version) < first else None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "exhaustive: minutes to hours. Runs with `-m exhaustive` only."
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Run the tests that need no server first, keep files together, and leave the
    exhaustive ones out unless they are asked for."""
    if "exhaustive" not in config.getoption("markexpr"):
        skip = pytest.mark.skip(reason="run with -m exhaustive")
        for item in items:
            if "exhaustive" in item.keywords:
                item.add_marker(skip)
    items.sort(key=lambda item: "server_pool" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def upstream_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pinned upstream wheel, fetched once, its hash checked."""
    pin = read_pin()
    wheel = pin.wheel_for_this_interpreter()
    return fetch_wheel(pin, wheel, tmp_path_factory.mktemp("upstream"))


@pytest.fixture(scope="session")
def upstream_tree(
    upstream_wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The pinned upstream wheel, unpacked; no test may change it."""
    tree = tmp_path_factory.mktemp("upstream_tree")
    with WheelFile(upstream_wheel) as archive:
        archive.extractall(tree)
    return tree


@pytest.fixture(scope="session")
def fork_wheel(upstream_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fork wheel, built from this repository."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "fork", "wheel", str(out)],
        cwd=REPOSITORY,
        env={**os.environ, LOCAL_WHEEL_VARIABLE: str(upstream_wheel)},
        check=True,
    )
    (wheel,) = out.iterdir()
    return wheel


@pytest.fixture(scope="session")
def dense_model() -> str:
    """Folder of the trained dense checkpoint."""
    return str(DENSE_MODEL)


@pytest.fixture(scope="session")
def moe_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of the mixture of experts made from it."""
    return str(build_variant("moe", tmp_path_factory.mktemp("moe")))


@pytest.fixture(scope="session")
def server_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPool]:
    """Servers by configuration; at most two are alive."""
    pool = ServerPool(tmp_path_factory.mktemp("servers"), limit=2)
    yield pool
    pool.stop()
