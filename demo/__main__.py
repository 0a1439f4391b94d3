"""``python -m demo [--model MODEL] [-- FLAGS OF THE SERVER]``: see ``demo``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from demo.measure import Completer, Measurement
from demo.show import Screen, percentages
from local_server import LocalServer, ServerConfig, ServerError

REPOSITORY = Path(__file__).resolve().parent.parent
OUR_MODEL = REPOSITORY / "test" / "models" / "trained"
HELD_OUT = REPOSITORY / "test" / "models" / "held_out_prompts.json"
LOGS = REPOSITORY / "build" / "demo"

PROMPTS = (
    'def read_header(self, stream):\n    """Read the header of the stream and return',
    "class RingBuffer:\n"
    '    """A buffer of fixed size that overwrites its oldest entry.\n',
    "def find_duplicates(paths):\n    seen = set()\n    for path in paths:\n",
    "    if not isinstance(weight, (int, float)):\n        raise TypeError(",
)
NEW_TOKENS = 64
# Short, so that repetition loops of a tiny model do not flatter its head.
HELD_OUT_TOKENS = 24


def main() -> int:
    options = parse_arguments()
    screen = Screen()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        demonstrate(options, screen)
    except ServerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        screen.say("\nStopped, and the server with it.")
        return 130
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo")
    parser.add_argument("--model", help="checkpoint to serve (default: our tiny one)")
    parser.add_argument("--tokens", type=int, default=NEW_TOKENS, help="new tokens")
    parser.add_argument("flags", nargs="*", help="flags of the server, after --")
    return parser.parse_args()


def demonstrate(options: argparse.Namespace, screen: Screen) -> None:
    nextn = server_config(options.model, options.flags)
    plain = nextn.without_speculation()

    with start(nextn, "NEXTN", screen) as server:
        completer = Completer(server.url)
        drafted = complete_all(completer, options.tokens, screen)
        show_held_out_acceptance(completer, screen)

    with start(plain, "no speculation", screen) as server:
        undrafted = complete_all(Completer(server.url), options.tokens, screen)

    screen.side_by_side(drafted, undrafted)
    screen.say("One run on this machine: the ratio is what to compare, not the speed.")


def server_config(model: str | None, flags: Sequence[str]) -> ServerConfig:
    if model is None:
        return ServerConfig(str(OUR_MODEL), nextn=True, arguments=tuple(flags))
    return ServerConfig(
        model,
        nextn=True,
        dtype="auto",
        max_total_tokens=None,
        max_mamba_cache_size=None,
        max_running_requests=None,
        arguments=tuple(flags),
    )


def start(config: ServerConfig, name: str, screen: Screen) -> LocalServer:
    """Start a server and show how it comes up."""
    screen.heading(f"Starting {config.model} with {name}")
    LOGS.mkdir(parents=True, exist_ok=True)
    server = LocalServer(config, LOGS / f"{name.replace(' ', '-').lower()}.log")
    began = time.monotonic()
    try:
        with screen.console.status("starting") as status:

            def progress(line: str) -> None:
                seconds = time.monotonic() - began
                width = screen.console.width - 12
                status.update(Text(f"{seconds:3.0f} s  {line[:width]}"))

            server.wait(timeout=1800, progress=progress)
    except BaseException:
        server.stop()
        raise
    seconds = time.monotonic() - began
    screen.say(f"It answers at {server.url} after {seconds:.0f} s; log: {server.log}")
    return server


def complete_all(
    completer: Completer, tokens: int, screen: Screen
) -> list[Measurement]:
    completer.stream("import ", tokens)  # warms up every code path
    measurements = []
    for prompt in PROMPTS:
        screen.prompt(prompt)
        measured = completer.stream(prompt, tokens, show=screen.piece)
        screen.figures(measured)
        measurements.append(measured)
    return measurements


def show_held_out_acceptance(completer: Completer, screen: Screen) -> None:
    prompts = json.loads(HELD_OUT.read_text("utf-8"))
    acceptance = completer.acceptance(prompts, HELD_OUT_TOKENS)
    screen.heading("Acceptance on held-out prompts")
    if acceptance is None:
        screen.say("The server did not speculate.")
        return
    screen.say(
        f"{len(prompts)} prompts, {HELD_OUT_TOKENS} new tokens each, greedy: mean "
        f"accept length {acceptance.length:.2f}, drafts accepted by position "
        f"{percentages(acceptance)}."
    )


if __name__ == "__main__":
    sys.exit(main())
