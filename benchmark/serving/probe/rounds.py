"""Decode rounds from the forwards that the probe noted."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FORWARDS = ("decode", "draft", "verify", "draft_extend")
_FIRST = ("decode", "verify")


@dataclass(frozen=True)
class Forward:
    """One call of ``model.forward``; times in seconds of ``time.perf_counter``.

    Attributes:
        cpu_started: processor time of the scheduler's thread, in seconds.
        lm_head_rows: rows of logits that it returned.
    """

    kind: str
    started: float
    cpu_started: float
    ended: float
    cpu_ended: float
    batch_size: int
    lm_head_rows: int

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    @property
    def cpu_seconds(self) -> float:
        return self.cpu_ended - self.cpu_started


@dataclass(frozen=True)
class Round:
    """From the start of one target forward to the start of the next.

    Attributes:
        seconds: of the whole round.
        forwards: seconds by kind, summed over the round's calls.
        lm_head_rows: rows of logits by kind, summed likewise.
        other_cpu: processor seconds of the scheduler's thread that are in no forward.
    """

    started: float
    seconds: float
    batch_size: int
    forwards: dict[str, float]
    lm_head_rows: dict[str, int]
    other_cpu: float

    @property
    def other(self) -> float:
        """Seconds that are not in a forward."""
        return self.seconds - sum(self.forwards.values())


def read_rounds(folder: Path, started: float, ended: float) -> list[Round]:
    """Read the rounds within a span of time, whole ones only, prefills left out."""
    rounds = []
    current: list[Forward] = []
    for forward in _read(folder):
        if not started <= forward.started <= ended:
            continue
        if forward.kind in _FIRST:
            if current:
                rounds.append(_round(current, forward))
            current = [forward]
        elif forward.kind not in FORWARDS:
            current = []
        elif current:
            current.append(forward)
    return rounds


def read_floor(folder: Path, started: float, ended: float) -> float:
    """Median seconds of one round's forwards when nothing else is between them.

    Raises:
        ValueError: no replay took place in the span.
    """
    found: dict[str, list[Forward]] = {}
    for forward in _read(folder):
        if forward.kind.startswith("floor_") and started <= forward.started <= ended:
            found.setdefault(forward.kind, []).append(forward)
    if not found:
        raise ValueError(f"{folder}: no forwards were replayed")
    rounds = min(map(len, found.values()))
    calls = sorted((f for all_of in found.values() for f in all_of), key=_start)
    each = len(calls) // rounds
    return statistics.median(
        sum(call.seconds for call in calls[first : first + each])
        for first in range(0, each * rounds, each)
    )


def _round(forwards: Sequence[Forward], following: Forward) -> Round:
    seconds = dict.fromkeys(FORWARDS, 0.0)
    rows = dict.fromkeys(FORWARDS, 0)
    for forward in forwards:
        seconds[forward.kind] += forward.seconds
        rows[forward.kind] += forward.lm_head_rows
    first = forwards[0]
    cpu = following.cpu_started - first.cpu_started
    return Round(
        started=first.started,
        seconds=following.started - first.started,
        batch_size=first.batch_size,
        forwards=seconds,
        lm_head_rows=rows,
        other_cpu=cpu - sum(forward.cpu_seconds for forward in forwards),
    )


def _read(folder: Path) -> Iterator[Forward]:
    for path in folder.glob("forwards-*.csv"):
        with path.open(newline="") as file:
            for kind, *times, batch_size, rows in csv.reader(file):
                yield Forward(kind, *map(float, times), int(batch_size), int(rows))


def _start(forward: Forward) -> float:
    return forward.started
