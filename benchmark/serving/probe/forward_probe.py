"""A plugin of SGLang that notes when each model forward began and ended.

SGLang loads it by the entry point that ``probe.install`` writes; nothing of the served
code changes. A line of ``forwards-PID.csv`` is one call of ``model.forward``. When the
file ``replay`` appears beside it, with a batch size as its text, the forwards of the
next round of that size are called again in a loop: the least time that a round of these
forwards can take.
"""

from __future__ import annotations

import copy
import os
import time
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "FORWARD_PROBE_DIR"
REPLAY_FILE = "replay"
REPLAYS = 60
_KINDS = {
    (False, "DECODE"): "decode",
    (False, "TARGET_VERIFY"): "verify",
    (True, "DECODE"): "draft",
    (True, "DRAFT_EXTEND_V2"): "draft_extend",
}
_LAST_OF_A_ROUND = ("decode", "draft_extend")

Times = tuple[float, float]


def register() -> None:
    """Called by SGLang in each of its processes."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    probe = Probe(Path(os.environ[FOLDER_VARIABLE]))

    def watch(_: None, runner: Any, *args: Any, **kwargs: Any) -> None:
        probe.watch(runner)

    target = "sglang.srt.model_executor.model_runner.ModelRunner.load_model"
    HookRegistry.register(target, watch, HookType.AFTER)


class Probe:
    """Wraps ``model.forward`` of every runner in this process.

    Lines are written before a prefill, which is in no round, and after a replay.
    """

    def __init__(self, folder: Path):
        self.path = folder / f"forwards-{os.getpid()}.csv"
        self.replay_file = folder / REPLAY_FILE
        self.lines: list[str] = []
        self.calls: list[tuple[str, Any, Any, tuple[Any, ...]]] = []
        self.at_first_of_round = False

    def watch(self, runner: Any) -> None:
        forward, is_draft = runner.model.forward, runner.is_draft_worker

        def timed(*args: Any, **kwargs: Any) -> Any:
            batch = args[2]
            kind = _KINDS.get((is_draft, batch.forward_mode.name), "prefill")
            if kind == "prefill":
                self.write()
                self.calls, self.at_first_of_round = [], False
            if self.calls or (self.at_first_of_round and self.shall_replay(batch)):
                self.calls.append((kind, forward, *_kept(args)))
            started = _now()
            output = forward(*args, **kwargs)
            self.note(kind, started, batch, output)
            self.at_first_of_round = kind in _LAST_OF_A_ROUND
            if self.calls and self.at_first_of_round:
                self.replay()
            return output

        runner.model.forward = timed

    def note(self, kind: str, started: Times, batch: Any, output: Any) -> None:
        times = *started, *_now()
        logits = getattr(output, "next_token_logits", None)
        rows = 0 if logits is None else logits.shape[0]
        cells = (kind, *times, batch.batch_size, rows)
        self.lines.append(",".join(map(str, cells)) + "\n")

    def shall_replay(self, batch: Any) -> bool:
        try:
            return int(self.replay_file.read_text()) == batch.batch_size
        except FileNotFoundError:
            return False

    def replay(self) -> None:
        """Call the round's forwards in a loop; whoever pays for it ends wrong."""
        from sglang.srt.model_executor.forward_context import forward_context

        calls, self.calls = self.calls, []
        for _ in range(REPLAYS):
            for kind, forward, context, args in calls:
                with forward_context(context):
                    started = _now()
                    output = forward(*args)
                self.note(f"floor_{kind}", started, args[2], output)
        self.write()
        self.replay_file.unlink()

    def write(self) -> None:
        if self.lines:
            with self.path.open("a") as file:
                file.writelines(self.lines)
            self.lines.clear()


def _now() -> Times:
    """Seconds: of the clock, and of the processor for this thread."""
    return time.perf_counter(), time.thread_time()


def _kept(args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The context and a copy of the arguments that the rest of the round can't change.

    What a backend prepared for a forward stays as it is until the next round.
    """
    from sglang.srt.model_executor.forward_context import get_forward_context

    input_ids, positions, batch = args
    batch = copy.copy(batch)
    for name in ("positions", "mrope_positions"):
        tensor = getattr(batch, name)
        if tensor is not None:
            setattr(batch, name, tensor.clone())
    batch.spec_info = copy.copy(batch.spec_info)
    return get_forward_context(), (input_ids, positions.clone(), batch)
