"""The CPU kernels are taken wherever the installed sgl_kernel runs."""

import os
import sys
import unittest
from types import SimpleNamespace
from unittest.mock import patch

from sglang.srt.utils import common
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

SILENT = SimpleNamespace()


class TestCpuKernelsWithoutAmx(CustomTestCase):
    def setUp(self):
        super().setUp()
        cached = (common._sgl_kernel_requires_amx, common.is_cpu)
        for function in cached:
            function.cache_clear()
            self.addCleanup(function.cache_clear)
        patcher = patch.dict(os.environ, SGLANG_USE_CPU_ENGINE="1")
        patcher.start()
        self.addCleanup(patcher.stop)

    def has_support(self, kernels, has_tiles):
        with (
            patch.dict(sys.modules, sgl_kernel=kernels),
            patch.object(common, "is_amx_tile_supported", has_tiles),
            patch.object(common, "_is_intel_amx_backend_available", lambda: True),
        ):
            return common.cpu_has_amx_support()

    def test_kernels_that_need_no_amx_are_taken_without_it(self):
        kernels = SimpleNamespace(REQUIRES_AMX=False)
        self.assertTrue(self.has_support(kernels, has_tiles=False))

    def test_kernels_that_need_amx_or_do_not_say_are_left_without_it(self):
        for kernels in (SimpleNamespace(REQUIRES_AMX=True), SILENT):
            common._sgl_kernel_requires_amx.cache_clear()
            self.assertFalse(self.has_support(kernels, has_tiles=False))

    def test_with_amx_every_build_is_taken(self):
        for kernels in (SimpleNamespace(REQUIRES_AMX=True), SILENT):
            common._sgl_kernel_requires_amx.cache_clear()
            self.assertTrue(self.has_support(kernels, has_tiles=True))

    def test_a_missing_sgl_kernel_gives_no_cpu_kernels(self):
        self.assertFalse(self.has_support(None, has_tiles=False))


if __name__ == "__main__":
    unittest.main()
