"""A release says what is in it: checksums that verify, and a bill of materials."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from fork.errors import BuildError
from fork.pin import VERSION_VARIABLE, read_pin, read_pins
from fork.release import lock_of, write_checksums
from fork.sbom import write_sbom
from patches.series import load_series

PINS = read_pins()


def test_checksums_are_those_of_the_files(tmp_path: Path) -> None:
    files = [tmp_path / "a.whl", tmp_path / "b.whl"]
    for file in files:
        file.write_text(file.name)
    listed = write_checksums(files, tmp_path)
    check = ["sha256sum", "--check", "--strict", listed.name]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 0
    files[0].write_text("another")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1


@pytest.mark.parametrize("pin", PINS, ids=lambda pin: pin.version)
def test_the_bill_of_materials_names_the_sources_and_every_dependency(
    pin, tmp_path: Path
) -> None:
    wheel = tmp_path / pin.fork_filename(pin.wheels[0])
    wheel.write_bytes(b"a wheel")
    path = tmp_path / "sbom.json"
    write_sbom(pin, lock_of(pin), [wheel], path)
    first = path.read_bytes()
    write_sbom(pin, lock_of(pin), [wheel], path)
    assert path.read_bytes() == first
    document = json.loads(first)
    fork = document["metadata"]["component"]
    assert fork["version"] == pin.fork_version
    (file,) = fork["components"]
    assert file["hashes"][0]["content"] == hashlib.sha256(b"a wheel").hexdigest()
    (upstream,) = fork["pedigree"]["ancestors"]
    hashes = {c["name"]: c["hashes"][0]["content"] for c in upstream["components"]}
    assert hashes == {w.filename: w.sha256 for w in pin.wheels}
    numbers = {p["resolves"][0]["id"] for p in fork["pedigree"]["patches"]}
    assert numbers == {str(patch.number) for patch in load_series()}
    versions = {c["name"]: c["version"] for c in document["components"]}
    assert "torch" in versions and "transformers" in versions
    lines = [line for line in lock_of(pin).read_text().splitlines() if "==" in line]
    assert len(document["components"]) == len(lines)


def test_the_first_release_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VERSION_VARIABLE, raising=False)
    assert read_pin() == PINS[0]
    monkeypatch.setenv(VERSION_VARIABLE, PINS[-1].version)
    assert read_pin() == PINS[-1]


def test_a_release_that_is_not_pinned_is_an_error_that_lists_those(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VERSION_VARIABLE, "0.4.0")
    with pytest.raises(BuildError, match=r"0\.4\.0") as caught:
        read_pin()
    assert all(pin.version in str(caught.value) for pin in PINS)


def test_every_release_has_a_wheel_for_the_same_pythons_and_platforms() -> None:
    def tags(pin):
        return {(wheel.python_version, wheel.platform) for wheel in pin.wheels}

    assert all(tags(pin) == tags(PINS[0]) for pin in PINS)
    assert len(tags(PINS[0])) == 6
