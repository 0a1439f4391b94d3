"""Read the properties of a CUDA device."""

from __future__ import annotations

import functools
from typing import Any

import torch

from sgl_kernel_nvfp4.config import Device

RTX_PRO_6000 = Device((12, 0), 188, 101_376, 102_400)
"""The properties that static tools assume for SM120; shared memory is SM120's limit."""

GB10 = Device((12, 1), 48, 101_376, 102_400)


@functools.cache
def _cuda_device(index: int) -> Device:
    properties: Any = torch.cuda.get_device_properties(index)
    return Device(
        capability=(properties.major, properties.minor),
        multiprocessors=properties.multi_processor_count,
        shared_per_block=properties.shared_memory_per_block_optin,
        shared_per_multiprocessor=properties.shared_memory_per_multiprocessor,
    )


def current_device(device: torch.device) -> Device:
    """Properties of ``device``, a CUDA device."""
    index = torch.cuda.current_device() if device.index is None else device.index
    return _cuda_device(index)
