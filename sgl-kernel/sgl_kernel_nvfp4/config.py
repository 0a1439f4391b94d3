"""How a GEMM kernel is cut into programs, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GemmConfig:
    """One compiled variant of a GEMM kernel.

    native: use the FP4 tensor cores of SM12x; otherwise dequantise to bfloat16.
    """

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    split_k: int = 1
    group_m: int = 8
    native: bool = True

    def even_k(self, k: int) -> bool:
        return k % self.block_k == 0

    def shared_bytes(self, kernel: str) -> int:
        """Bytes of shared memory that the pipeline of ``kernel`` takes.

        Triton keeps num_stages - 1 buffers of each operand.
        """
        a_bits = 16 if kernel == "w4a16_gemm" else 4
        codes = (self.block_m * a_bits + self.block_n * 4) * self.block_k // 8
        scaled_rows = self.block_n + (0 if kernel == "w4a16_gemm" else self.block_m)
        buffer = codes + scaled_rows * self.block_k // 16
        return buffer * max(self.num_stages - 1, 1)


@dataclass(frozen=True)
class QuantizeConfig:
    """Rows and columns that one program quantises, and its warps."""

    rows: int
    block_k: int
    num_warps: int
    native: bool = True


@dataclass(frozen=True)
class Device:
    """The properties of a GPU that decide a config; never its name."""

    capability: tuple[int, int]
    multiprocessors: int
    shared_per_block: int
    shared_per_multiprocessor: int

    @property
    def has_fp4_mma(self) -> bool:
        """Whether warp-level block-scaled FP4 MMA exists (SM12x, not SM100)."""
        return self.capability[0] == 12

    @property
    def has_fp4_conversion(self) -> bool:
        """Whether PTX converts to and from e2m1."""
        return self.capability[0] >= 10
