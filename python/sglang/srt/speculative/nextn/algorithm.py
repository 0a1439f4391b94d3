"""Decides, while arguments are resolved, what a request for NEXTN becomes."""

from __future__ import annotations

from typing import Any

from sglang.srt.speculative.nextn.head_config import get_architecture

NATIVE = ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration")


def resolve_nextn_algorithm(cfg: Any, hf_config: Any) -> str:
    """Return the algorithm that serves a request for NEXTN.

    Args:
        cfg: the server arguments as resolved so far.
        hf_config: the target's configuration.
    """
    return "NEXTN" if get_architecture(hf_config) in NATIVE else "EAGLE"
