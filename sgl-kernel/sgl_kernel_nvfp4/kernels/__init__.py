"""Triton kernels, which take raw sizes; callers use ``sgl_kernel_nvfp4``."""
