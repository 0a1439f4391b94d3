"""Layers of Qwen3.5 models at the batch sizes of decode and prefill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sgl_kernel_nvfp4.model_shapes import LAYERS

DECODE_ROWS = (1, 4, 16, 32, 64, 128)
PREFILL_ROWS = (512, 2048, 8192)
BLOCK_SCALE_BYTES = 1 / 16


@dataclass(frozen=True)
class Problem:
    """One GEMM: M x K activations, N x K weights, of ``experts`` experts if routed."""

    model: str
    layer: str
    tensor_parallel: int
    m: int
    n: int
    k: int
    experts: int = 0
    top_k: int = 0

    @property
    def name(self) -> str:
        return f"{self.model} {self.layer} TP{self.tensor_parallel}"

    @property
    def active_experts(self) -> float:
        """Distinct experts that M tokens are expected to reach; 1 for a dense layer."""
        if not self.experts:
            return 1.0
        return self.experts * (1 - (1 - self.top_k / self.experts) ** self.m)

    @property
    def rows(self) -> int:
        return self.m * max(self.top_k, 1)

    @property
    def flop(self) -> float:
        return 2.0 * self.rows * self.n * self.k

    def weight_bytes(self, bits: float) -> float:
        """Bytes of the weights read; 4-bit ones have a scale for 16 elements."""
        scales = BLOCK_SCALE_BYTES if bits == 4 else 0.0
        return self.active_experts * self.n * self.k * (bits / 8 + scales)

    def bytes(self, weight_bits: float = 4, activation_bits: float = 4) -> float:
        """Bytes of weights, activations, and a bfloat16 output, once each."""
        scales = BLOCK_SCALE_BYTES if activation_bits == 4 else 0.0
        activations = self.m * self.k * (activation_bits / 8 + scales)
        return self.weight_bytes(weight_bits) + activations + 2.0 * self.rows * self.n


def problems(
    models: list[str] | None,
    tensor_parallel: list[int],
    rows: list[int] | None,
    prefill: bool,
) -> Iterator[Problem]:
    chosen = rows or [*DECODE_ROWS, *(PREFILL_ROWS if prefill else ())]
    for layer in LAYERS:
        if models and layer.model not in models:
            continue
        for size in tensor_parallel:
            n, k = layer.shape(size)
            for m in chosen:
                if layer.layer == "lm_head" and m > 64:
                    continue
                yield Problem(
                    layer.model,
                    layer.layer,
                    size,
                    m,
                    n,
                    k,
                    layer.experts,
                    layer.top_k,
                )
