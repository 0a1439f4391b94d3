"""GEMM shapes of Qwen3.5 models, for tuning and measuring."""

from __future__ import annotations

from dataclasses import dataclass

TENSOR_PARALLEL = (1, 2, 4, 8)


@dataclass(frozen=True)
class LayerShapes:
    """(N, K) of one layer for each size in TENSOR_PARALLEL.

    experts, top_k: of a layer of routed experts; 0 for a dense one.
    """

    model: str
    layer: str
    shapes: tuple[tuple[int, int], ...]
    experts: int = 0
    top_k: int = 0

    def shape(self, tensor_parallel: int) -> tuple[int, int]:
        return self.shapes[TENSOR_PARALLEL.index(tensor_parallel)]


def _columns(n: int, k: int) -> tuple[tuple[int, int], ...]:
    """A layer whose output is split over the ranks."""
    return tuple((n // size, k) for size in TENSOR_PARALLEL)


def _rows(n: int, k: int) -> tuple[tuple[int, int], ...]:
    """A layer whose input is split over the ranks."""
    return tuple((n, k // size) for size in TENSOR_PARALLEL)


# Key and value heads are repeated where there are fewer of them than ranks.
_QKV_27B = ((14336, 5120), (7168, 5120), (3584, 5120), (2048, 5120))
_QKV_397B = ((17408, 4096), (8704, 4096), (4608, 4096), (2560, 4096))

LAYERS = (
    LayerShapes("27B", "gate_up", _columns(34816, 5120)),
    LayerShapes("27B", "down", _rows(5120, 17408)),
    LayerShapes("27B", "qkv+gate", _QKV_27B),
    LayerShapes("27B", "o", _rows(5120, 6144)),
    LayerShapes("27B", "lm_head", _columns(248320, 5120)),
    LayerShapes("35B-A3B", "w13", _columns(1024, 2048), 256, 8),
    LayerShapes("35B-A3B", "w2", _rows(2048, 512), 256, 8),
    LayerShapes("397B-A17B", "w13", _columns(2048, 4096), 512, 10),
    LayerShapes("397B-A17B", "w2", _rows(4096, 1024), 512, 10),
    LayerShapes("397B-A17B", "qkv+gate", _QKV_397B),
)
