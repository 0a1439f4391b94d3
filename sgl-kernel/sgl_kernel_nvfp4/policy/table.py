"""The table of configs, read from JSON.

``rules`` of the first device entry that matches apply in order: the first whose
conditions hold and whose shared memory fits. ``tuned`` lists exact shapes that a tuner
measured on a device with those properties; M is the greatest M that the line serves.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from sgl_kernel_nvfp4.config import Device, GemmConfig

TUNED_TABLE_VARIABLE = "SGL_NVFP4_TUNED_TABLE"
"""Environment variable with the path of a table that ``autotune`` wrote."""

SCHEMA = 1
MAX_SPLIT = 8
GEMM_KERNELS = ("w4a4_gemm", "w4a4_argmax", "w4a4_grouped_gemm", "w4a16_gemm")
RULE_KEYS = {"max_m", "k_multiple", "max_split", "config"}
CONFIG_KEYS = set(GemmConfig.__dataclass_fields__)


@dataclass(frozen=True)
class Rule:
    """A config for M up to max_m and K a multiple of k_multiple.

    max_split: the greatest split of K; a great tile has no registers left to add many.
    """

    max_m: int | None
    k_multiple: int
    max_split: int
    config: GemmConfig

    def applies(self, m: int, k: int) -> bool:
        return (self.max_m is None or m <= self.max_m) and k % self.k_multiple == 0


@dataclass(frozen=True)
class DeviceEntry:
    """Rules for the devices whose capability lies in [min, max]."""

    min_capability: tuple[int, int]
    max_capability: tuple[int, int]
    rules: dict[str, tuple[Rule, ...]]

    def matches(self, device: Device) -> bool:
        return self.min_capability <= device.capability <= self.max_capability


@dataclass(frozen=True)
class Tuned:
    """A measured config for one shape on one kind of device."""

    capability: tuple[int, int]
    multiprocessors: int
    kernel: str
    m: int
    n: int
    k: int
    config: GemmConfig


@dataclass(frozen=True, eq=False)
class Table:
    """All entries; compared by identity, since a process reads its table once."""

    devices: tuple[DeviceEntry, ...]
    tuned: tuple[Tuned, ...]

    def rules(self, kernel: str, device: Device) -> tuple[Rule, ...]:
        for entry in self.devices:
            if entry.matches(device):
                return entry.rules[kernel]
        raise ValueError(
            f"no NVFP4 config for capability {device.capability}: the kernels need "
            f"{min(entry.min_capability for entry in self.devices)} or later"
        )

    def tuned_config(
        self, kernel: str, m: int, n: int, k: int, device: Device
    ) -> GemmConfig | None:
        lines = [
            line
            for line in self.tuned
            if (line.kernel, line.n, line.k) == (kernel, n, k)
            and line.capability == device.capability
            and line.multiprocessors == device.multiprocessors
            and m <= line.m
        ]
        return min(lines, key=lambda line: line.m).config if lines else None


def _config(data: dict[str, Any], where: str) -> GemmConfig:
    unknown = set(data) - CONFIG_KEYS
    if unknown:
        raise ValueError(
            f"{where}: unknown keys {sorted(unknown)} in a config; known are "
            f"{sorted(CONFIG_KEYS)}"
        )
    try:
        return GemmConfig(**data)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None


def _rule(data: dict[str, Any], where: str) -> Rule:
    unknown = set(data) - RULE_KEYS
    if unknown or "config" not in data:
        raise ValueError(
            f"{where}: a rule has keys {sorted(RULE_KEYS)}, got {sorted(data)}"
        )
    config = _config(data["config"], where)
    return Rule(
        max_m=data.get("max_m"),
        k_multiple=data.get("k_multiple", 1),
        max_split=data.get("max_split", MAX_SPLIT),
        config=config,
    )


def parse_table(data: dict[str, Any], where: str) -> Table:
    """The table in JSON ``data``; errors name ``where``."""
    if data.get("schema") != SCHEMA:
        raise ValueError(f"{where}: schema {data.get('schema')!r}, expected {SCHEMA}")
    devices = []
    for entry in data.get("devices", []):
        missing = [name for name in GEMM_KERNELS if name not in entry["rules"]]
        if missing:
            raise ValueError(f"{where}: a device entry has no rules for {missing}")
        rules = {
            kernel: tuple(_rule(rule, f"{where}: {kernel}") for rule in lines)
            for kernel, lines in entry["rules"].items()
        }
        low, high = entry["min_capability"], entry["max_capability"]
        devices.append(DeviceEntry(tuple(low), tuple(high), rules))
    tuned = [
        Tuned(
            capability=tuple(line["capability"]),
            multiprocessors=line["multiprocessors"],
            kernel=line["kernel"],
            m=line["m"],
            n=line["n"],
            k=line["k"],
            config=_config(line["config"], f"{where}: tuned {line['kernel']}"),
        )
        for line in data.get("tuned", [])
    ]
    return Table(tuple(devices), tuple(tuned))


def read_table(path: Path) -> Table:
    try:
        data = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: cannot read a table of configs: {error}") from error
    return parse_table(data, str(path))


@functools.cache
def load_table() -> Table:
    """The built-in rules, and the tuned lines of SGL_NVFP4_TUNED_TABLE if it is set."""
    source = resources.files("sgl_kernel_nvfp4.policy") / "table.json"
    table = parse_table(json.loads(source.read_text()), "table.json")
    extra = os.environ.get(TUNED_TABLE_VARIABLE)
    if extra:
        table = Table(table.devices, table.tuned + read_table(Path(extra)).tuned)
    return table
