"""A draft that the requested algorithm cannot drive: accepted without a word upstream.

EAGLE3 drafts read hidden states of three of the target's layers, EAGLE drafts those of
the last. With the wrong one of the two names every draft is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.arg_groups.remap.record import Remap, Request, Source
from sglang.srt.arg_groups.remap.requested import requests_of

_RULE = "draft architecture"


def draft_remaps(server_args: Any) -> Iterator[Remap]:
    """Yield the algorithm if it does not fit the architecture of the draft."""
    cfg = resolving_view(server_args)
    algorithm = cfg.speculative_algorithm
    request = requests_of(server_args).get("speculative_algorithm")
    if request is None or algorithm not in ("EAGLE", "EAGLE3", "NEXTN"):
        return
    architecture = _draft_architecture(cfg)
    if architecture is None:
        return
    fitting = algorithm_of_draft(architecture)
    if fitting is None or fitting == algorithm:
        return
    yield Remap(
        setting="speculative_algorithm",
        asked=server_args._raw_input["speculative_algorithm"],
        effective=f"{algorithm} with an {fitting} draft",
        rule=_RULE,
        reason=f"the draft is a {architecture}, which {algorithm} cannot drive: no "
        "draft will be accepted",
        advice=f"type {_written(request, fitting)}",
        request=request,
        can_be_typed=False,
    )


def algorithm_of_draft(architecture: str) -> str | None:
    """The algorithm that drives a draft of that architecture; None if several may."""
    lowered = architecture.lower()
    if "eagle3" in lowered:
        return "EAGLE3"
    if "eagle" in lowered:
        return "EAGLE"
    return None


def _draft_architecture(cfg: Any) -> str | None:
    if not cfg.speculative_draft_model_path:
        return None
    from sglang.srt.utils.hf_transformers_utils import get_config

    config = get_config(
        cfg.speculative_draft_model_path,
        trust_remote_code=cfg.trust_remote_code,
        revision=cfg.speculative_draft_model_revision,
    )
    architectures = getattr(config, "architectures", None) or [None]
    return architectures[0]


def _written(request: Request, algorithm: str) -> str:
    if request.source is Source.KEYWORD:
        return f'speculative_algorithm="{algorithm}"'
    return f"--speculative-algorithm {algorithm}"
