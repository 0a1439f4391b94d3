"""Triton kernels. They take raw sizes and 16-byte units; callers use ``sgl_kernel_nvfp4``."""
