"""The bill of materials of a release: what is in the wheels and what they install."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import (
    Component,
    ComponentType,
    Patch,
    PatchClassification,
    Pedigree,
)
from cyclonedx.model.issue import IssueClassification, IssueType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

from fork.fetch import sha256_of
from fork.pin import Pin
from patches.series import load_series


def write_sbom(pin: Pin, lock: Path, wheels: Sequence[Path], path: Path) -> None:
    """Write a CycloneDX document, byte for byte the same from the same inputs.

    Args:
        lock: the requirements file that pins every dependency.
        wheels: the fork's wheels; each is a component with its sha256.
    """
    fork = Component(
        name=pin.name,
        version=pin.fork_version,
        type=ComponentType.FRAMEWORK,
        bom_ref=f"{pin.name}-{pin.fork_version}",
        purl=_purl(pin.name, pin.fork_version),
        components=[_file(wheel.name, sha256_of(wheel)) for wheel in wheels],
        pedigree=Pedigree(ancestors=[_upstream(pin)], patches=list(_patches(pin))),
    )
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{pin.name}=={pin.fork_version}"),
        components=list(_dependencies(lock)),
        metadata=BomMetaData(component=fork),
    )
    bom.register_dependency(fork, bom.components)
    bom.metadata.timestamp = None  # type: ignore[assignment]
    path.write_text(JsonV1Dot6(bom).output_as_string(indent=1) + "\n")


def _upstream(pin: Pin) -> Component:
    return Component(
        name=pin.name,
        version=pin.version,
        type=ComponentType.FRAMEWORK,
        bom_ref=f"{pin.name}-{pin.version}",
        purl=_purl(pin.name, pin.version),
        components=[_file(wheel.filename, wheel.sha256) for wheel in pin.wheels],
    )


def _patches(pin: Pin) -> Iterator[Patch]:
    for patch in load_series():
        if patch.edits_for(pin.version):
            title = IssueType(
                type=IssueClassification.ENHANCEMENT,
                id=str(patch.number),
                name=patch.title,
            )
            yield Patch(type=PatchClassification.UNOFFICIAL, resolves=[title])


def _file(name: str, sha256: str) -> Component:
    return Component(
        name=name,
        type=ComponentType.FILE,
        bom_ref=name,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
    )


def _dependencies(lock: Path) -> Iterator[Component]:
    for line in lock.read_text().splitlines():
        text = line.split("#")[0].strip()
        if not text:
            continue
        requirement = Requirement(text)
        (pinned,) = requirement.specifier
        yield Component(
            name=requirement.name,
            version=pinned.version,
            type=ComponentType.LIBRARY,
            bom_ref=text,
            purl=_purl(requirement.name, pinned.version),
        )


def _purl(name: str, version: str) -> PackageURL:
    return PackageURL("pypi", name=name, version=version)
