"""A server on a CPU survives a request to release its memory."""

import unittest
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers.scheduler_components.weight_updater import (
    SchedulerWeightUpdaterManager,
)

register_cpu_ci(est_time=5, suite="base-a-test-cpu")


class TestReleaseMemoryOnCpu(CustomTestCase):
    def test_the_device_of_the_model_is_synchronized(self):
        asked = []

        def get_device_module(device=None):
            asked.append(device)
            return SimpleNamespace(synchronize=lambda: None)

        updater = MagicMock()
        updater.tp_worker.model_runner.device = "cpu"
        updater.offload_tags = set()
        with patch.object(torch, "get_device_module", get_device_module):
            SchedulerWeightUpdaterManager.release_memory_occupation(
                updater, SimpleNamespace(tags=["cuda_graph"])
            )
        self.assertEqual(asked, ["cpu"])
        self.assertEqual(updater.offload_tags, {"cuda_graph"})


if __name__ == "__main__":
    unittest.main()
