"""Asks a process that holds one SGLang what it makes of a command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("resolver_process.py")


@dataclass(frozen=True)
class Resolution:
    """What came of one command line.

    Attributes:
        raw: every field as it was asked for.
        resolved: every field as it would run.
        remaps: the remap report as data; empty on upstream.
        log: level and message of every record during resolution and the report.
        error: type and text of the exception that ended it.
    """

    log: list[tuple[str, str]]
    error: tuple[str, str] | None = None
    raw: dict[str, Any] = field(default_factory=dict)
    resolved: dict[str, Any] = field(default_factory=dict)
    remaps: list[dict[str, Any]] = field(default_factory=list)

    @property
    def remap_lines(self) -> list[str]:
        """The lines of the report, by what only they say."""
        return [
            message
            for level, message in self.log
            if level == "WARNING" and ": asked " in message and ", using " in message
        ]


class Resolver:
    """A process with one SGLang; it resolves one command line after the other."""

    def __init__(self, tree: Path, model: Path):
        self.model = model
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("SGLANG_") and name != "PYTHONDONTWRITEBYTECODE"
        }
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(tree)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**environment, "SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1"},
        )

    def resolve(
        self,
        argv: Sequence[str] = (),
        *,
        model: Path | None = None,
        environment: Mapping[str, str] | None = None,
        keywords: Mapping[str, Any] | None = None,
        launch: bool = False,
    ) -> Resolution:
        """Resolve a command line, or the keywords of a call, for the CPU.

        Args:
            launch: start a server with it, as ``sglang.launch_server`` does.
        """
        path = str(model or self.model)
        if keywords is not None:
            keywords = {"model_path": path, "device": "cpu", **keywords}
        request = {
            "argv": ["--model-path", path, "--device", "cpu", *argv],
            "environment": dict(environment or {}),
            "keywords": keywords,
            "launch": launch,
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        answer["error"] = answer["error"] and tuple(answer["error"])
        answer["log"] = [(level, message) for level, message in answer["log"]]
        return Resolution(**answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
