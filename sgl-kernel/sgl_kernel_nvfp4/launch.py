"""One kernel launch as data: run it here, or hand it to a proof tool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Launch:
    """Everything that decides what a Triton kernel does.

    arguments: tensors and integers by parameter name.
    constants: the ``tl.constexpr`` parameters by name.
    writes: names of the tensors whose old contents no program may read.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, torch.Tensor | int | float]
    constants: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 1
    writes: frozenset[str] = field(default_factory=frozenset)

    def run(self) -> None:
        self.kernel[self.grid](
            **self.arguments,
            **self.constants,
            num_warps=self.num_warps,
            num_stages=self.num_stages,
        )
