"""A checked MTP head: all that is needed to build it and to load it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang.srt.speculative.nextn.checkpoint import (
    HeadCheckpoint,
    read_head_checkpoint,
)
from sglang.srt.speculative.nextn.completeness import (
    Problem,
    find_problems,
    incomplete_head_error,
    missing_head_error,
)
from sglang.srt.speculative.nextn.head_config import HeadConfig, read_head_config
from sglang.srt.speculative.nextn.inventory import Inventory, take_inventory
from sglang.srt.speculative.nextn.layout import count_layers
from sglang.srt.speculative.nextn.quantization import (
    HeadQuantization,
    decide_quantization,
)
from sglang.srt.speculative.nextn.quantization_config import (
    QuantizationConfig,
    read_quantization_config,
)


@dataclass(frozen=True)
class HeadPlan:
    """One checkpoint's head: where it is, what it is made of, what is wrong with it."""

    checkpoint: HeadCheckpoint
    config: HeadConfig
    inventory: Inventory
    quantization: HeadQuantization
    problems: tuple[Problem, ...]

    @property
    def num_layers(self) -> int:
        """Layers to build: the config's number, or the weights' if it is silent."""
        if self.config.num_layers is not None:
            return self.config.num_layers
        return count_layers(self.checkpoint.tensors)


def draft_plan(
    checkpoint: HeadCheckpoint,
    config: HeadConfig,
    quantization: QuantizationConfig | None,
) -> HeadPlan:
    """Plan the head in `checkpoint`; its `problems` say whether it can be served.

    Raises:
        IncompleteHeadError: there is no head at all.
    """
    error = missing_head_error(checkpoint, config)
    if error is not None:
        raise error
    inventory = take_inventory(checkpoint, config, quantization)
    return HeadPlan(
        checkpoint,
        config,
        inventory,
        decide_quantization(inventory, quantization),
        find_problems(checkpoint, config, inventory),
    )


def plan_head(path: str | Path, hf_config: Any) -> HeadPlan:
    """The complete head of the checkpoint at `path`, by names, shapes and dtypes.

    Args:
        path: folder or index file, as for `read_head_checkpoint`.
        hf_config: the target's config, from transformers or as config.json's object.

    Raises:
        CheckpointError: a file of the checkpoint cannot be understood.
        IncompleteHeadError: the head is absent, incomplete or not as configured.
    """
    checkpoint = read_head_checkpoint(path)
    plan = draft_plan(
        checkpoint,
        read_head_config(hf_config),
        read_quantization_config(hf_config, checkpoint.root),
    )
    if plan.problems:
        raise incomplete_head_error(checkpoint, plan.problems)
    return plan
