"""No NCCL communicator is opened for the CPU, whether libnccl loads or not."""

import unittest
from unittest.mock import patch

import torch

from sglang.srt.distributed.device_communicators import pynccl
from sglang.srt.distributed.device_communicators.pynccl import PyNcclCommunicator
from sglang.srt.distributed.utils import StatelessProcessGroup
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=5, suite="base-a-test-cpu")


class TestPyNcclOnCpu(CustomTestCase):
    def test_a_communicator_for_the_cpu_is_disabled(self):
        group = StatelessProcessGroup(rank=0, world_size=2, store=None)
        for device in ("cpu", torch.device("cpu")):
            with self.subTest(device=device), patch.object(pynccl, "NCCLLibrary"):
                communicator = PyNcclCommunicator(group, device)
                self.assertFalse(communicator.available)
                self.assertTrue(communicator.disabled)


if __name__ == "__main__":
    unittest.main()
