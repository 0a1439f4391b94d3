"""Host memory is pinned only where the platform can pin it."""

import unittest
from types import SimpleNamespace
from unittest.mock import patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.lora.backend.torch_backend import TorchNativeLoRABackend
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.utils import common

register_cpu_ci(est_time=5, suite="base-a-test-cpu")


class TestMaybePinMemory(CustomTestCase):
    def test_host_memory_stays_pageable_where_the_platform_cannot_pin(self):
        tensor = torch.arange(3)
        with patch.object(common, "is_pin_memory_available", lambda: False):
            self.assertIs(common.maybe_pin_memory(tensor), tensor)

    def test_host_memory_is_pinned_where_the_platform_can(self):
        pinned = object()
        tensor = SimpleNamespace(pin_memory=lambda: pinned)
        with patch.object(common, "is_pin_memory_available", lambda: True):
            self.assertIs(common.maybe_pin_memory(tensor), pinned)

    def test_a_lora_batch_is_prepared_on_a_machine_without_a_gpu(self):
        backend = TorchNativeLoRABackend(2, torch.device("cpu"))
        batch = SimpleNamespace(batch_size=3, forward_mode=ForwardMode.DECODE)
        backend.prepare_lora_batch(batch, [0, 0, 1], [4, 8], [1.0, 0.5], False)
        self.assertEqual(backend.batch_info.seg_lens[:2].tolist(), [2, 1])
        self.assertEqual(backend.batch_info.lora_ranks.tolist(), [4, 8])


if __name__ == "__main__":
    unittest.main()
