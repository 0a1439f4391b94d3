"""Host memory is pinned only where the platform can pin it."""

import unittest
from types import SimpleNamespace
from unittest.mock import patch

import torch

from sglang.srt.utils import common
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

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


if __name__ == "__main__":
    unittest.main()
