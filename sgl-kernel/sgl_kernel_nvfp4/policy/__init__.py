"""Which config a kernel takes for a shape on a device."""

from sgl_kernel_nvfp4.policy.choose import (
    choose_gemm,
    choose_quantize,
    choose_split,
    moe_block_m,
)
from sgl_kernel_nvfp4.policy.device import current_device
from sgl_kernel_nvfp4.policy.table import Table, load_table

__all__ = [
    "Table",
    "choose_gemm",
    "choose_quantize",
    "choose_split",
    "current_device",
    "load_table",
    "moe_block_m",
]
