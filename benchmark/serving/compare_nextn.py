"""What a decode round costs: no speculation, upstream's alias, and native NEXTN.

    python benchmark/serving/compare_nextn.py [--streams 1 4] [--real-vocabulary]

Measured: the real server over HTTP, greedy, on one checkpoint, three servers side by
side that take turns prompt by prompt, so that whatever else the machine does meets all
of them; ratios are of neighbouring turns. The alias runs from a tree of its own
(``fork/alias.py``): upstream's wheel with the same CPU operators and none of NEXTN. A
plugin (``probe``) in all three notes when each ``model.forward`` began and ended, and
calls the forwards of a round again in a loop: the floor.

    round    from the start of one target forward to the start of the next, in the
             scheduler's process: forwards, batches, sampling, scheduling, HTTP aside
    other    what of it is in no forward
    floor    the round's own forwards called directly, one after the other

Not measured: a GPU, where graphs replace most of "other". The model has some megabytes,
so the shares are not those of a real one; the milliseconds of "other" are what carries.
Writes a table, a CSV file and a plot to build/benchmark.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "test" / "models")]

from measured_server import MeasuredServer, Served  # noqa: E402
from nextn_report import BASELINE, Turn, table, write_csv, write_plot  # noqa: E402
from probe.rounds import FORWARDS, Round  # noqa: E402
from tiny_qwen.variants import VARIANTS  # noqa: E402

from local_server import ServerConfig  # noqa: E402

MODELS = REPOSITORY / "test" / "models"
ALIAS, NATIVE = "alias", "native"
SERVERS = (BASELINE, ALIAS, NATIVE)


def main() -> None:
    options = parse_arguments()
    # A killed benchmark stops its servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    prompts = json.loads((MODELS / "held_out_prompts.json").read_text())
    options.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        if options.real_vocabulary:
            scratch = tempfile.TemporaryDirectory(prefix="real-vocabulary-")
            folder = stack.enter_context(scratch)
            VARIANTS["large_vocabulary"].build(Path(options.model), Path(folder))
            options.model = folder
        servers = {
            name: stack.enter_context(start(options, name)) for name in options.servers
        }
        turns = [
            turn
            for streams in options.streams
            for turn in take_turns(servers, prompts, streams, options)
        ]
    write_csv(turns, options.out / "compare_nextn.csv")
    write_plot(turns, options.out / "compare_nextn.png")
    text = table(turns)
    (options.out / "compare_nextn.txt").write_text(text + "\n")
    print(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=str(MODELS / "trained"))
    parser.add_argument(
        "--real-vocabulary",
        action="store_true",
        help="pad the model's vocabulary to Qwen3.5's 248,320, on the spot; its tokens "
        "and drafts stay what they are, and lm_head is most of a round",
    )
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--steps", type=int, default=3, help="drafts a round")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--servers", nargs="+", default=[*SERVERS], choices=SERVERS)
    parser.add_argument("--cores", help="of each server, as 0 or 0-1; default: all")
    parser.add_argument("--repeats", type=int, default=15, help="turns of each server")
    parser.add_argument("--tokens", type=int, default=96, help="new tokens a prompt")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build" / "benchmark")
    return parser.parse_args()


def start(options: argparse.Namespace, name: str) -> MeasuredServer:
    """Start one server; both that speculate are given the same flags."""
    arguments = ["--skip-server-warmup", "--sleep-on-idle"]
    if name != BASELINE:
        arguments += ["--speculative-algorithm", "NEXTN"]
        arguments += ["--speculative-num-steps", str(options.steps)]
        arguments += ["--speculative-eagle-topk", "1"]
        arguments += ["--speculative-num-draft-tokens", str(options.steps + 1)]
    config = ServerConfig(
        options.model, dtype=options.dtype, arguments=tuple(arguments)
    )
    folder = options.out / f"server-{name}"
    return MeasuredServer(config, folder, name == ALIAS, options.cores)


def take_turns(
    servers: dict[str, MeasuredServer],
    prompts: Sequence[str],
    streams: int,
    options: argparse.Namespace,
) -> list[Turn]:
    """Let every server complete the same prompts, in an order that rotates."""
    turns = []
    for repeat in range(options.repeats):
        first = repeat * streams % len(prompts)
        chosen = [*prompts, *prompts][first : first + streams]
        offset = repeat % len(servers)
        for name in [*servers, *servers][offset : offset + len(servers)]:
            floor = servers[name].floor(chosen, options.tokens)
            served = servers[name].serve(chosen, options.tokens)
            turns.append(turn_of(name, streams, repeat, served, floor))
            print(f"{streams} streams, turn {repeat + 1}: {name}", file=sys.stderr)
    return turns


def turn_of(name: str, streams: int, repeat: int, served: Served, floor: float) -> Turn:
    """Medians of one turn's rounds, in milliseconds."""
    rounds = served.rounds
    per_forward = {
        kind: 1e3 * statistics.median(each.forwards[kind] for each in rounds)
        for kind in FORWARDS
    }
    acceptances = [one.acceptance for one in served.measurements if one.acceptance]
    histograms = [acceptance.histogram for acceptance in acceptances]
    return Turn(
        server=name,
        streams=streams,
        repeat=repeat,
        tokens_per_second=served.tokens_per_second,
        rounds=len(rounds),
        round_ms=1e3 * statistics.median(each.seconds for each in rounds),
        **{f"{kind}_ms": ms for kind, ms in per_forward.items()},
        other_ms=1e3 * statistics.median(each.other for each in rounds),
        other_cpu_ms=1e3 * statistics.median(each.other_cpu for each in rounds),
        floor_ms=1e3 * floor,
        lm_head_rows=lm_head_rows(rounds[-1]),
        histogram=tuple(map(sum, zip(*histograms, strict=True))),
    )


def lm_head_rows(one: Round) -> str:
    """Rows of logits that the forwards of a round return, for each request."""
    return ", ".join(
        f"{kind.replace('_', '-')} {one.lm_head_rows[kind] // one.batch_size}"
        for kind in FORWARDS
        if one.lm_head_rows[kind]
    )


if __name__ == "__main__":
    main()
