"""Resolves command lines with the SGLang of one tree: a JSON line in, a JSON line out.

    python resolver_process.py TREE

TREE is a folder that holds the ``sglang`` package, the fork's or upstream's. The CPU
kernels claim to need AMX, so that both trees take the machine for the same one.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
from typing import Any


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import sgl_kernel_cpu
    from sgl_kernel_cpu.select import install

    install()
    sgl_kernel_cpu.REQUIRES_AMX = True
    environment = dict(os.environ)
    for line in sys.stdin:
        request = json.loads(line)
        os.environ.clear()
        os.environ.update(environment | request["environment"])
        random.seed(0)
        print(json.dumps(answer(request), default=str), file=answers, flush=True)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Resolve one request and return what came of it.

    Returns:
        ``raw`` and ``resolved`` field values, ``remaps`` as data, ``log`` as records
        of level and message, and ``error`` as the exception's type and text.
    """
    lines: list[tuple[str, str]] = []
    out: dict[str, Any] = {"log": lines, "error": None}
    record = None
    try:
        record = build(request)
        logging.getLogger().addHandler(Collector(lines))
        if request["launch"]:
            from sglang.launch_server import run_server

            run_server(record)
        record.resolve_once()
        if hasattr(record, "_remaps"):
            from sglang.srt.arg_groups.remap.report import log_remap_report

            log_remap_report(record)
    except (Exception, SystemExit) as error:
        out["error"] = [type(error).__name__, str(error)]
    if record is not None and hasattr(record, "_raw_input"):
        out["raw"] = record._raw_input
        out["resolved"] = record.resolved_dict()
        out["remaps"] = [remap.to_dict() for remap in getattr(record, "_remaps", ())]
    return out


def build(request: dict[str, Any]) -> Any:
    """The server arguments as a launcher builds them, before resolution."""
    from sglang.srt.server_args import ServerArgs, prepare_server_args

    keywords = request["keywords"]
    if keywords is None:
        return prepare_server_args(request["argv"])
    from sglang.srt.arg_groups.remap.requested import record_keywords

    record = ServerArgs(**keywords)
    record_keywords(record, keywords)
    return record


class Collector(logging.Handler):
    """Keeps the level and the message of every record."""

    def __init__(self, lines: list[tuple[str, str]]):
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


if __name__ == "__main__":
    main()
