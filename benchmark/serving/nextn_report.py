"""The table, the CSV file and the plot of ``compare_nextn``."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import matplotlib.pyplot as plt

from demo.measure import Acceptance

BASELINE = "none"
ALIAS = "alias"
PARTS = ("decode_ms", "draft_ms", "verify_ms", "draft_extend_ms", "other_ms")


@dataclass(frozen=True)
class Turn:
    """One turn of one server: medians of its rounds, in milliseconds.

    Attributes:
        streams: prompts completed at once.
        tokens_per_second: of all streams together, prefill included.
        other_ms: what of a round is in no forward.
        other_cpu_ms: processor time of the scheduler's thread outside the forwards; it
            does not see what else the machine runs.
        lm_head_rows: of the drafts, of the verify, of the draft-extend, per request.
        floor_ms: the round's forwards called directly in a loop.
        histogram: verify steps that accepted 0, 1, 2, … drafts; empty without drafts.
    """

    server: str
    streams: int
    repeat: int
    tokens_per_second: float
    rounds: int
    round_ms: float
    decode_ms: float
    draft_ms: float
    verify_ms: float
    draft_extend_ms: float
    other_ms: float
    other_cpu_ms: float
    floor_ms: float
    lm_head_rows: str
    histogram: tuple[int, ...]

    @property
    def round_over_floor(self) -> float:
        return self.round_ms / self.floor_ms


def table(turns: Sequence[Turn]) -> str:
    """Medians over the turns with the quarters around them."""
    blocks = [
        _block(streams, [turn for turn in turns if turn.streams == streams])
        for streams in sorted({turn.streams for turn in turns})
    ]
    return "\n\n".join(blocks)


def write_csv(turns: Sequence[Turn], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        names = [field.name for field in fields(Turn)]
        writer.writerow(names)
        for turn in turns:
            row = {**vars(turn), "histogram": " ".join(map(str, turn.histogram))}
            writer.writerow(row[name] for name in names)


def write_plot(turns: Sequence[Turn], path: Path) -> None:
    """Left: what a round is made of, beside its floor. Right: tokens per second."""
    groups = sorted({(turn.streams, turn.server) for turn in turns}, key=_group_order)
    figure, (parts, rates) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    labels = [f"{name}\n{streams} stream(s)" for streams, name in groups]
    bottoms = [0.0] * len(groups)
    for part in PARTS:
        heights = [_median(_select(turns, group), part) for group in groups]
        parts.bar(labels, heights, bottom=bottoms, label=part.removesuffix("_ms"))
        bottoms = [low + high for low, high in zip(bottoms, heights, strict=True)]
    floors = [_median(_select(turns, group), "floor_ms") for group in groups]
    parts.plot(labels, floors, "k_", markersize=40, label="forwards called directly")
    parts.set_ylabel("ms a round (medians)")
    parts.legend(fontsize="small")
    values = [
        [turn.tokens_per_second for turn in _select(turns, group)] for group in groups
    ]
    rates.boxplot(values, tick_labels=labels)
    rates.set_ylabel("tokens/s")
    rates.set_ylim(bottom=0)
    for axes in (parts, rates):
        axes.tick_params(axis="x", labelsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _block(streams: int, turns: list[Turn]) -> str:
    names = list(dict.fromkeys(turn.server for turn in turns))
    names.sort(key=lambda name: _group_order((streams, name)))
    of = {name: [turn for turn in turns if turn.server == name] for name in names}
    rounds = ", ".join(f"{name} {sum(t.rounds for t in of[name])}" for name in names)
    lines = [f"{streams} stream(s), {len(of[names[0]])} turns each; rounds: {rounds}"]
    lines.append(f"{'':24}" + "".join(f"{name:>26}" for name in names))

    def row(label: str, cell: Callable[[str], str]) -> None:
        lines.append(f"{label:24}" + "".join(f"{cell(name):>26}" for name in names))

    def values(name: str, field: str) -> list[float]:
        return [getattr(turn, field) for turn in of[name]]

    row("tokens/s", lambda name: spread(values(name, "tokens_per_second"), ".0f"))
    row("  times no speculation", lambda n: _ratio(of, n, BASELINE, _rate))
    row("  times the alias", lambda n: _ratio(of, n, ALIAS, _rate))
    row("accept length", lambda name: _accept_length(of[name]))
    row("accepted by position", lambda name: _by_position(of[name]))
    row("round, ms", lambda name: spread(values(name, "round_ms"), ".2f"))
    for part in PARTS:
        label = f"  {part.removesuffix('_ms').replace('_', '-')}"
        row(label, lambda name, part=part: spread(values(name, part), ".2f"))
    row("  other, times the alias", lambda n: _ratio(of, n, ALIAS, _other))
    row("  other, processor ms", lambda n: spread(values(n, "other_cpu_ms"), ".2f"))
    row("    times the alias", lambda n: _ratio(of, n, ALIAS, _other_cpu))
    row("lm_head rows a request", lambda name: of[name][0].lm_head_rows)
    row("forwards directly, ms", lambda name: spread(values(name, "floor_ms"), ".2f"))
    row("  round over that", lambda n: spread(values(n, "round_over_floor"), ".3f"))
    return "\n".join(lines)


def spread(values: Sequence[float], form: str) -> str:
    """The median and the quarters around it."""
    if not any(values):
        return "-"
    if len(values) == 1:
        return f"{values[0]:{form}}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:{form}} ({low:{form}}..{high:{form}})"


def _ratio(
    of: dict[str, list[Turn]], name: str, base: str, measure: Callable[[Turn], float]
) -> str:
    if name == base or base not in of:
        return "-"
    pairs = zip(of[name], of[base], strict=True)
    return spread([measure(mine) / measure(its) for mine, its in pairs], ".2f")


def _rate(turn: Turn) -> float:
    return turn.tokens_per_second


def _other(turn: Turn) -> float:
    return turn.other_ms


def _other_cpu(turn: Turn) -> float:
    return turn.other_cpu_ms


def _acceptance(turns: Sequence[Turn]) -> Acceptance | None:
    histograms = [turn.histogram for turn in turns if turn.histogram]
    if not histograms:
        return None
    return Acceptance(tuple(map(sum, zip(*histograms, strict=True))))


def _accept_length(turns: Sequence[Turn]) -> str:
    acceptance = _acceptance(turns)
    return f"{acceptance.length:.2f}" if acceptance else "-"


def _by_position(turns: Sequence[Turn]) -> str:
    acceptance = _acceptance(turns)
    if not acceptance:
        return "-"
    return " ".join(f"{share:.3f}" for share in acceptance.by_position)


def _select(turns: Sequence[Turn], group: tuple[int, str]) -> list[Turn]:
    return [turn for turn in turns if (turn.streams, turn.server) == group]


def _median(turns: Sequence[Turn], field: str) -> float:
    return statistics.median(getattr(turn, field) for turn in turns)


def _group_order(group: tuple[int, str]) -> tuple[int, int]:
    streams, name = group
    return streams, [BASELINE, ALIAS].index(name) if name in (BASELINE, ALIAS) else 2
