"""Tokens per second without speculation, with EAGLE and with NEXTN, on one checkpoint.

    python benchmark/serving/compare_nextn.py [--streams 1 4] [--repeats 7]

EAGLE is what upstream makes of NEXTN: its worker is upstream's own code, on the same
operators and the same fixes for the CPU. The three servers live side by side and take
turns prompt by prompt, so that whatever else the machine does meets all of them; ratios
are of neighbouring turns. Writes a table, a CSV file and a plot.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import matplotlib.pyplot as plt

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from demo.measure import Acceptance, Completer, Measurement  # noqa: E402
from local_server import LocalServer, ServerConfig  # noqa: E402

MODELS = REPOSITORY / "test" / "models"
BASELINE = "none"
SPECULATION: dict[str, tuple[str, ...]] = {
    BASELINE: (),
    "EAGLE": ("--speculative-algorithm", "EAGLE"),
    "NEXTN": ("--speculative-algorithm", "NEXTN"),
}


@dataclass(frozen=True)
class Turn:
    """One turn of one server.

    Attributes:
        streams: prompts completed at once.
        tokens_per_second: of all streams together.
        ratio: to the neighbouring turn without speculation.
    """

    server: str
    streams: int
    repeat: int
    tokens_per_second: float
    ratio: float
    accept_length: float | None


def main() -> None:
    options = parse_arguments()
    prompts = json.loads((MODELS / "held_out_prompts.json").read_text())
    options.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        completers = {
            name: stack.enter_context(WarmServer(options, name, flags))
            for name, flags in SPECULATION.items()
        }
        turns = [
            turn
            for streams in options.streams
            for turn in take_turns(completers, prompts, streams, options)
        ]
    write_csv(turns, options.out / "compare_nextn.csv")
    write_plot(turns, options.out / "compare_nextn.png")
    print(table(turns))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=str(MODELS / "trained"))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--repeats", type=int, default=7, help="turns of each server")
    parser.add_argument("--tokens", type=int, default=96, help="new tokens a prompt")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build" / "benchmark")
    return parser.parse_args()


class WarmServer:
    """A warm server as a ``with`` block that gives its client."""

    def __init__(self, options: argparse.Namespace, name: str, flags: Sequence[str]):
        arguments = ("--skip-server-warmup", "--sleep-on-idle", *flags)
        config = ServerConfig(options.model, dtype=options.dtype, arguments=arguments)
        self.process = LocalServer(config, options.out / f"server-{name}.log")

    def __enter__(self) -> Completer:
        self.process.wait()
        completer = Completer(self.process.url)
        for _ in range(3):
            completer.stream("import os\n", tokens=32)
        return completer

    def __exit__(self, *error: object) -> None:
        self.process.stop()


def take_turns(
    completers: dict[str, Completer],
    prompts: Sequence[str],
    streams: int,
    options: argparse.Namespace,
) -> list[Turn]:
    """Let every server complete the same prompts, one server after the other."""
    turns = []
    for repeat in range(options.repeats):
        start = repeat * streams % len(prompts)
        chosen = [*prompts, *prompts][start : start + streams]
        rates: dict[str, tuple[float, list[Measurement]]] = {
            name: complete(completer, chosen, options.tokens)
            for name, completer in completers.items()
        }
        baseline = rates[BASELINE][0]
        for name, (rate, measured) in rates.items():
            length = mean_accept_length(measured)
            turns.append(Turn(name, streams, repeat, rate, rate / baseline, length))
    return turns


def complete(
    completer: Completer, prompts: Sequence[str], tokens: int
) -> tuple[float, list[Measurement]]:
    """Complete prompts at once; return tokens per second and each measurement."""
    started = time.perf_counter()
    with ThreadPoolExecutor(len(prompts)) as pool:
        measured = list(pool.map(lambda text: completer.stream(text, tokens), prompts))
    seconds = time.perf_counter() - started
    return sum(one.tokens for one in measured) / seconds, measured


def mean_accept_length(measured: Sequence[Measurement]) -> float | None:
    acceptances: list[Acceptance] = [
        one.acceptance for one in measured if one.acceptance is not None
    ]
    if not acceptances:
        return None
    verifies = sum(acceptance.verifies for acceptance in acceptances)
    weighted = sum(each.length * each.verifies for each in acceptances)
    return weighted / verifies


def table(turns: Sequence[Turn]) -> str:
    """Medians with the quarters around them."""
    lines = [
        "streams  server  tokens/s  (quarters)      ratio  (quarters)    accept length"
    ]
    for streams, name in sorted({(turn.streams, turn.server) for turn in turns}):
        mine = [
            turn for turn in turns if (turn.streams, turn.server) == (streams, name)
        ]
        lengths = [turn.accept_length for turn in mine if turn.accept_length]
        length = f"{statistics.mean(lengths):.2f}" if lengths else "-"
        rates = spread([turn.tokens_per_second for turn in mine], ".0f")
        ratios = spread([turn.ratio for turn in mine], ".2f")
        lines.append(f"{streams:7}  {name:6}  {rates:22}  {ratios:19}  {length}")
    return "\n".join(lines)


def spread(values: Sequence[float], form: str) -> str:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:{form}}  ({low:{form}} to {high:{form}})"


def write_csv(turns: Sequence[Turn], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in fields(Turn)])
        writer.writerows(astuple(turn) for turn in turns)


def write_plot(turns: Sequence[Turn], path: Path) -> None:
    """Ratios to no speculation, a box for each server and number of streams."""
    groups = sorted({(turn.streams, turn.server) for turn in turns})
    groups = [group for group in groups if group[1] != BASELINE]
    data = [
        [turn.ratio for turn in turns if (turn.streams, turn.server) == group]
        for group in groups
    ]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.boxplot(
        data, tick_labels=[f"{name}\n{streams} streams" for streams, name in groups]
    )
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_ylabel("tokens/s, times no speculation")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
