"""The operations, as torch.library custom ops for CUDA, CPU and fake tensors."""

from sgl_kernel_nvfp4.ops.gemm import gemm, w4a16_gemm
from sgl_kernel_nvfp4.ops.head import argmax_head
from sgl_kernel_nvfp4.ops.moe import combine, grouped_gemm, moe
from sgl_kernel_nvfp4.ops.quantize import (
    quantize,
    rmsnorm_quantize,
    silu_and_mul_quantize,
)

__all__ = [
    "argmax_head",
    "combine",
    "gemm",
    "grouped_gemm",
    "moe",
    "quantize",
    "rmsnorm_quantize",
    "silu_and_mul_quantize",
    "w4a16_gemm",
]
