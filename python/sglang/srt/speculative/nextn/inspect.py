"""Say what MTP head a checkpoint has and whether NEXTN serves it, without loading it.

    python -m sglang.srt.speculative.nextn.inspect MODEL [--json]

Needs no GPU, opens only the shards that matter and reads only their headers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence

from sglang.srt.speculative.nextn.completeness import describe_problems
from sglang.srt.speculative.nextn.cost import HeadCost
from sglang.srt.speculative.nextn.head_config import SparseMLP
from sglang.srt.speculative.nextn.head_plan import HeadPlan
from sglang.srt.speculative.nextn.report import Report, Verdict, inspect_model

_LABEL_WIDTH = 14

_VERDICTS = {
    Verdict.YES: "yes, natively",
    Verdict.NO: "not natively",
    Verdict.BROKEN: "no, the checkpoint is broken",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report on one model; returns 0 for yes, 1 for no, 2 for broken."""
    options = _parser().parse_args(arguments)
    report = inspect_model(options.model)
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        print("\n".join(render(report)))
    return report.verdict


def render(report: Report) -> Iterator[str]:
    """The report for people, line by line."""
    yield _row("model", report.model)
    if report.support is not None:
        yield _row("architecture", report.support.architecture or "not named")
    yield _row("NEXTN", _VERDICTS[report.verdict])
    yield from _head_rows(report)
    if report.plan is not None:
        yield from _plan_rows(report.plan)
    if report.cost is not None and report.verdict is Verdict.YES:
        yield from _cost_rows(report.cost, report.plan)
    for warning in report.checkpoint.warnings if report.checkpoint else ():
        yield _row("warning", warning)
    if report.verdict is not Verdict.YES:
        first, *rest = report.reason.splitlines()
        yield _row("why", first)
        yield from rest
    if report.command is not None:
        yield _row("run", report.command)


def _head_rows(report: Report) -> Iterator[str]:
    checkpoint = report.checkpoint
    if checkpoint is None:
        return
    if not checkpoint.tensors and not checkpoint.absent:
        yield _row("MTP head", f"none in {checkpoint.source}")
        return
    parts = [f"{len(checkpoint.tensors):,} tensors"]
    if report.num_layers:
        parts.insert(0, _count(report.num_layers, "layer"))
    if checkpoint.num_bytes is not None:
        parts.append(format_bytes(checkpoint.num_bytes))
    yield _row("MTP head", ", ".join(parts))
    yield _row(
        "shards",
        f"{len(checkpoint.head_shards)} of {len(checkpoint.shards)}: "
        + ", ".join(checkpoint.head_shards),
    )
    if not checkpoint.has_shapes:
        yield _row("", "the shards are not here: names are known, shapes are not")


def _plan_rows(plan: HeadPlan) -> Iterator[str]:
    label = "storage"
    for module, storage in plan.quantization.labels.items():
        yield _row(label, f"{module:<48} {storage}")
        label = ""
    for disagreement in plan.quantization.disagreements:
        yield _row("note", f"{disagreement}. The tensors decide.")
    problems = list(describe_problems(plan.problems))
    yield _row("complete", "no" if problems else "yes")


def _cost_rows(cost: HeadCost, plan: HeadPlan | None) -> Iterator[str]:
    about = "about " if cost.is_estimate else ""
    yield _row(
        "memory",
        f"{about}{format_bytes(cost.weight_bytes)} of weights and "
        f"{format_bytes(cost.kv_bytes_per_token)} of KV cache a token; the target's "
        f"embed_tokens and lm_head ({format_bytes(cost.shared_bytes)}) are shared",
    )
    mlp = plan.config.mlp if plan else None
    experts = (
        f" with {mlp.num_experts_per_tok} of {mlp.num_experts} experts"
        if isinstance(mlp, SparseMLP)
        else ""
    )
    yield _row(
        "draft step",
        f"reads {about}{format_bytes(cost.draft_step_bytes)}: "
        f"{format_bytes(cost.active_weight_bytes)} of the head{experts}, "
        f"{format_bytes(cost.lm_head_bytes)} of lm_head (one request, no TP)",
    )


def format_bytes(count: int) -> str:
    """`count` in the binary unit that leaves one to four digits, such as 2.4 GiB."""
    if count < 1024:
        return f"{count} bytes"
    size = count / 1024
    for unit in ("KiB", "MiB"):
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _row(label: str, text: str) -> str:
    return f"{label:<{_LABEL_WIDTH}}{text}".rstrip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sglang.srt.speculative.nextn.inspect",
        description="Say what MTP head a checkpoint has and whether --speculative-"
        "algorithm NEXTN serves it natively. Loads no weights, needs no GPU.",
        epilog="Exit status: 0 yes, 1 not natively or no head, 2 broken checkpoint.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="checkpoint folder, safetensors index file, or a Hugging Face repository "
        "that is in the local cache",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
