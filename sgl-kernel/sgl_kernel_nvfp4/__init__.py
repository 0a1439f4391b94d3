"""NVFP4 kernels for SM12x in Triton, with plain PyTorch behind them on the CPU.

>>> codes, scale = quantize(x, input_scale_inv)
>>> y = gemm(codes, scale, weight, weight_scale, alpha)
"""

from sgl_kernel_nvfp4.formats import (
    pack_codes,
    pad_codes,
    swizzle_scales,
    unpack_codes,
    unswizzle_scales,
)
from sgl_kernel_nvfp4.ops import (
    argmax_head,
    combine,
    gemm,
    grouped_gemm,
    moe,
    quantize,
    rmsnorm_quantize,
    silu_and_mul_quantize,
    w4a16_gemm,
)
from sgl_kernel_nvfp4.policy import moe_block_m
from sgl_kernel_nvfp4.workspace import reserve

__all__ = [
    "argmax_head",
    "combine",
    "gemm",
    "grouped_gemm",
    "moe",
    "moe_block_m",
    "pack_codes",
    "pad_codes",
    "quantize",
    "reserve",
    "rmsnorm_quantize",
    "silu_and_mul_quantize",
    "swizzle_scales",
    "unpack_codes",
    "unswizzle_scales",
    "w4a16_gemm",
]
