"""Everything that `inspect` knows about one model."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from sglang.srt.speculative.nextn.checkpoint import (
    HeadCheckpoint,
    read_head_checkpoint,
)
from sglang.srt.speculative.nextn.completeness import NoHeadError
from sglang.srt.speculative.nextn.cost import HeadCost, estimate_cost
from sglang.srt.speculative.nextn.head_plan import HeadPlan
from sglang.srt.speculative.nextn.layout import count_layers
from sglang.srt.speculative.nextn.local_model import find_local_model
from sglang.srt.speculative.nextn.safetensors_header import CheckpointError
from sglang.srt.speculative.nextn.support import NextnSupport, support_of
from sglang.srt.speculative.nextn.weight_index import read_json

# What SGLang chooses when --speculative-num-steps is not given.
DEFAULT_STEPS = 3


class Verdict(IntEnum):
    """Whether NEXTN runs natively on a model; the value is the exit status."""

    YES = 0
    NO = 1
    BROKEN = 2


@dataclass(frozen=True)
class Report:
    """The findings on one model.

    Attributes:
        model: as the user gave it.
        reason: why the verdict, for people; several lines where problems are listed.
    """

    model: str
    verdict: Verdict
    reason: str
    support: NextnSupport | None = None
    checkpoint: HeadCheckpoint | None = None
    cost: HeadCost | None = None

    @property
    def plan(self) -> HeadPlan | None:
        return self.support.plan if self.support else None

    @property
    def num_layers(self) -> int:
        return count_layers(self.checkpoint.tensors) if self.checkpoint else 0

    @property
    def algorithm(self) -> str | None:
        """The --speculative-algorithm that serves the head; None when none does."""
        if self.verdict is Verdict.YES:
            return "NEXTN"
        served_as_draft = self.support and self.support.draft_architecture
        if self.verdict is Verdict.NO and served_as_draft and _has_head(self):
            return "EAGLE"
        return None

    @property
    def command(self) -> str | None:
        """A command line that serves the model with its head; None when none does."""
        if self.algorithm is None:
            return None
        return (
            f"python -m sglang.launch_server --model-path {_servable(self.model)} "
            f"--speculative-algorithm {self.algorithm} "
            f"--speculative-num-steps {DEFAULT_STEPS} --speculative-eagle-topk 1 "
            f"--speculative-num-draft-tokens {DEFAULT_STEPS + 1}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON types; sizes in bytes, null where not known."""
        support, plan = self.support, self.plan
        return {
            "model": self.model,
            "verdict": self.verdict.name.lower(),
            "reason": self.reason,
            "architecture": support.architecture if support else None,
            "native": bool(support and support.native),
            "has_head": _has_head(self),
            "draft_architecture": support.draft_architecture if support else None,
            "head": _head_facts(self),
            "problems": [
                {
                    "kind": problem.kind.value,
                    "name": problem.name,
                    "shard": problem.shard,
                    "found": problem.found,
                    "expected": problem.expected,
                }
                for problem in (plan.problems if plan else ())
            ],
            "warnings": list(self.checkpoint.warnings) if self.checkpoint else [],
            "cost": _cost_facts(self.cost),
            "command": self.command,
        }


def inspect_model(model: str) -> Report:
    """Report on a checkpoint folder, an index file or a cached repository.

    Opens only the shards of the head and of the tables it shares, and reads headers.
    Never raises for what the model's files contain.
    """
    path = find_local_model(model)
    if path is None:
        return Report(
            model,
            Verdict.BROKEN,
            f"{model} is not on this machine: give a checkpoint folder, an index file, "
            "or a Hugging Face repository that is in the local cache.",
        )
    folder = path if path.is_dir() else path.parent
    try:
        config = read_json(folder / "config.json")
    except CheckpointError as error:
        return _without_config(model, path, error)
    support = support_of(path, config, read_shared=True)
    if support.checkpoint is None and support.error is None:
        support = _look_anyway(support, path)
    return _judge(model, path, support)


def _look_anyway(support: NextnSupport, path: Path) -> NextnSupport:
    """Even where no architecture is known, say what lies in the files."""
    try:
        checkpoint = read_head_checkpoint(path)
    except CheckpointError as error:
        return replace(support, error=error)
    has_head = bool(checkpoint.tensors or checkpoint.absent)
    return replace(support, checkpoint=checkpoint, has_head=has_head)


def _without_config(model: str, path: Path, error: CheckpointError) -> Report:
    try:
        checkpoint = read_head_checkpoint(path)
    except CheckpointError as unreadable:
        return Report(model, Verdict.BROKEN, str(unreadable))
    return Report(
        model,
        Verdict.BROKEN,
        f"{error} Without it the architecture and the shapes are not known.",
        checkpoint=checkpoint,
    )


def _judge(model: str, path: Path, support: NextnSupport) -> Report:
    checkpoint, plan = support.checkpoint, support.plan
    cost = estimate_cost(plan) if plan else None
    if support.error is not None:
        no_head = isinstance(support.error, NoHeadError)
        verdict = Verdict.NO if no_head else Verdict.BROKEN
        reason = str(support.error)
    elif checkpoint is not None and checkpoint.missing_shards and path.is_dir():
        verdict = Verdict.BROKEN
        reason = (
            f"{checkpoint.source} names shards that are not there: "
            f"{', '.join(checkpoint.missing_shards)}. Download them."
        )
    else:
        verdict = Verdict.YES if support.native else Verdict.NO
        reason = support.reason
    return Report(model, verdict, reason, support, checkpoint, cost)


def _has_head(report: Report) -> bool | None:
    if report.support is not None and report.support.has_head is not None:
        return report.support.has_head
    if report.checkpoint is not None:
        return bool(report.checkpoint.tensors or report.checkpoint.absent)
    return None


def _head_facts(report: Report) -> dict[str, Any] | None:
    checkpoint, plan = report.checkpoint, report.plan
    if checkpoint is None or not _has_head(report):
        return None
    return {
        "num_layers": report.num_layers,
        "num_tensors": len(checkpoint.tensors),
        "num_bytes": checkpoint.num_bytes,
        "index": checkpoint.source,
        "shards": list(checkpoint.head_shards),
        "num_shards": len(checkpoint.shards),
        "complete": not plan.problems if plan else None,
        "storage": dict(plan.quantization.labels) if plan else None,
        "disagreements": (
            [str(one) for one in plan.quantization.disagreements] if plan else []
        ),
    }


def _cost_facts(cost: HeadCost | None) -> dict[str, Any] | None:
    if cost is None:
        return None
    return {
        "weight_bytes": cost.weight_bytes,
        "kv_bytes_per_token": cost.kv_bytes_per_token,
        "active_weight_bytes": cost.active_weight_bytes,
        "lm_head_bytes": cost.lm_head_bytes,
        "draft_step_bytes": cost.draft_step_bytes,
        "shared_bytes": cost.shared_bytes,
        "is_estimate": cost.is_estimate,
    }


def _servable(model: str) -> str:
    """What --model-path takes: the folder where the user gave its index."""
    path = Path(model)
    return shlex.quote(str(path.parent) if path.is_file() else model)
