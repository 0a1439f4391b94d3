"""The fork wheel: what is in it, and what installs next to it."""

from __future__ import annotations

import subprocess
import venv
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from wheel.wheelfile import WheelFile

from fork.pin import REPOSITORY, read_pin
from patches.series import load_series

PIN = read_pin()


@pytest.fixture(scope="module")
def fork(fork_wheel: Path) -> ZipFile:
    return ZipFile(fork_wheel)


@pytest.fixture(scope="module")
def upstream(upstream_wheel: Path) -> ZipFile:
    return ZipFile(upstream_wheel)


def metadata(wheel: ZipFile) -> Message:
    (name,) = [n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")]
    return HeaderParser().parsestr(wheel.read(name).decode())


def test_version_is_upstreams_with_a_local_part(fork: ZipFile) -> None:
    version = Version(metadata(fork)["Version"])
    assert version.public == PIN.version
    assert version.local is not None
    assert version.local.startswith("nextn.")


@pytest.mark.parametrize("wanted", [f"sglang=={PIN.version}", "sglang>=0.5.20,<0.6"])
def test_version_satisfies_what_others_require(fork: ZipFile, wanted: str) -> None:
    assert Requirement(wanted).specifier.contains(metadata(fork)["Version"])


def test_dependencies_and_extras_are_upstreams(
    fork: ZipFile, upstream: ZipFile
) -> None:
    for field in ("Requires-Dist", "Provides-Extra", "Requires-Python"):
        ours, theirs = metadata(fork).get_all(field), metadata(upstream).get_all(field)
        assert ours == theirs
        assert theirs, f"upstream has no {field}: this test would compare nothing"


def test_record_lists_every_file_with_its_hash(fork_wheel: Path) -> None:
    with WheelFile(fork_wheel) as wheel:
        for name in wheel.namelist():
            if not name.endswith("/"):
                wheel.read(name)  # raises for a file not in RECORD or not its hash


def test_changed_files_say_so_and_the_others_are_upstreams(
    fork: ZipFile, upstream: ZipFile
) -> None:
    patched = {
        f"sglang/{edit.file}"
        for patch in load_series()
        for edit in patch.edits_for(PIN.version)
    }
    assert patched
    for name in upstream.namelist():
        if name.endswith(("/", "/_version.py")) or ".dist-info/" in name:
            continue
        if name not in patched:
            assert fork.getinfo(name).CRC == upstream.getinfo(name).CRC, name
            continue
        first_lines = fork.read(name).decode().splitlines()[:2]
        assert any(
            line.startswith("# Modified by the NEXTN fork of SGLang (patches ")
            for line in first_lines
        ), f"{name} has no notice"


def test_licence_and_notice_travel_with_the_wheel(
    fork: ZipFile, upstream: ZipFile
) -> None:
    folder = f"sglang-{PIN.fork_version}.dist-info/licenses"
    for ours, name in (("LICENSE", "LICENSE.nextn"), ("NOTICE", "NOTICE.nextn")):
        assert fork.read(f"{folder}/{name}") == (REPOSITORY / ours).read_bytes()
    (theirs,) = [n for n in upstream.namelist() if n.endswith("licenses/LICENSE")]
    assert fork.read(f"{folder}/LICENSE") == upstream.read(theirs)


def test_our_packages_are_in_the_wheel(fork: ZipFile) -> None:
    names = set(fork.namelist())
    for root in ("python", "sgl-kernel"):
        for path in (REPOSITORY / root).rglob("*.py"):
            name = path.relative_to(REPOSITORY / root).as_posix()
            assert fork.read(name) == path.read_bytes()
    assert "sglang/srt/speculative/nextn/worker.py" in names
    assert not [name for name in names if "__pycache__" in name]


def test_installed_wheel_satisfies_an_exact_requirement(
    fork_wheel: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path, with_pip=True)
    python = str(tmp_path / "bin" / "python")
    install = (python, "-m", "pip", "install", "--no-index", "--no-deps")
    subprocess.run([*install, "--quiet", "--no-compile", str(fork_wheel)], check=True)
    shown = subprocess.check_output([*install, f"sglang=={PIN.version}"], text=True)
    assert f"Requirement already satisfied: sglang=={PIN.version}" in shown
    version = "import importlib.metadata as m; print(m.version('sglang'))"
    shown = subprocess.check_output([python, "-c", version], text=True)
    assert shown.strip() == PIN.fork_version
