"""Scratch memory that outlives a launch: partial sums and arrival counters."""

from __future__ import annotations

from dataclasses import dataclass

import torch

LEAST_KEY = -(2**63)


@dataclass(frozen=True)
class Workspace:
    """partial: float32, any values. arrived: int32, zeros. best: int64, LEAST_KEY.

    Every kernel leaves ``arrived`` and ``best`` as it found them.
    """

    partial: torch.Tensor
    arrived: torch.Tensor
    best: torch.Tensor

    @staticmethod
    def allocate(device: torch.device, floats: int, tiles: int, rows: int) -> Workspace:
        return Workspace(
            partial=torch.empty(max(floats, 1), dtype=torch.float32, device=device),
            arrived=torch.zeros(max(tiles, 1), dtype=torch.int32, device=device),
            best=torch.full(
                (max(rows, 1),), LEAST_KEY, dtype=torch.int64, device=device
            ),
        )


_workspaces: dict[tuple[torch.device, int], Workspace] = {}


_retired: list[Workspace] = []
"""Outgrown workspaces: a captured graph may still write to them."""


def workspace(
    device: torch.device, floats: int = 0, tiles: int = 0, rows: int = 0
) -> Workspace:
    """The workspace of the current stream of ``device``, grown where it is too small.

    One for each stream: kernels of two streams may run at once. A CUDA graph keeps the
    one it was captured with, so replays of graphs that share a capture stream must not
    overlap; SGLang's do not. ``reserve`` before a capture keeps allocations out of it.
    """
    stream = 0
    if device.type == "cuda":
        stream = torch.cuda.current_stream(device).cuda_stream
    key = (device, stream)
    current = _workspaces.get(key)
    have = (0, 0, 0)
    if current is not None:
        have = (
            current.partial.numel(),
            current.arrived.numel(),
            current.best.numel(),
        )
        if all(h >= n for h, n in zip(have, (floats, tiles, rows), strict=True)):
            return current
        _retired.append(current)
    sizes = [max(pair) for pair in zip(have, (floats, tiles, rows), strict=True)]
    _workspaces[key] = Workspace.allocate(device, *sizes)
    return _workspaces[key]


def reserve(
    device: torch.device,
    floats: int = 1 << 22,
    tiles: int = 1 << 14,
    rows: int = 1 << 10,
) -> None:
    """Allocate the workspace of the current stream now; 16 MiB by default."""
    workspace(device, floats, tiles, rows)
