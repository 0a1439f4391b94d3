"""The CPU engine is picked where nothing else can run."""

import os
import sys
import unittest
from types import SimpleNamespace
from unittest.mock import patch

import torch

from sglang import _cpu_engine
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

SWITCH = "SGLANG_USE_CPU_ENGINE"


class TestCpuEngineSelection(CustomTestCase):
    def setUp(self):
        super().setUp()
        self.num_installs = 0
        select = SimpleNamespace(install=self._install)
        chosen = {SWITCH, "SGLANG_PLATFORM"}
        environment = {k: v for k, v in os.environ.items() if k not in chosen}
        for patcher in (
            patch.dict(sys.modules, {"sgl_kernel_cpu.select": select}),
            patch.dict(os.environ, environment, clear=True),
            patch.object(_cpu_engine, "_has_compiled_cpu_kernels", lambda: False),
            patch.object(_cpu_engine, "find_spec", lambda name: name),
        ):
            patcher.start()
            self.addCleanup(patcher.stop)

    def _install(self):
        self.num_installs += 1

    def test_without_an_accelerator_the_engine_is_on_for_this_process_and_children(
        self,
    ):
        with patch.object(torch.cuda, "is_available", lambda: False):
            _cpu_engine.select_cpu_engine()
        self.assertEqual(os.environ[SWITCH], "1")
        self.assertEqual(self.num_installs, 1)

    def test_with_an_accelerator_nothing_changes(self):
        device = SimpleNamespace(is_available=lambda: True)
        for backend in ("cuda", "xpu", "mps", "npu"):
            with self.subTest(backend=backend):
                with patch.object(torch, backend, device, create=True):
                    _cpu_engine.select_cpu_engine()
                self.assertNotIn(SWITCH, os.environ)
                self.assertEqual(self.num_installs, 0)

    def test_a_named_platform_is_left_alone(self):
        with patch.dict(os.environ, SGLANG_PLATFORM="kunlun"):
            _cpu_engine.select_cpu_engine()
            self.assertNotIn(SWITCH, os.environ)

    def test_an_installed_platform_plugin_is_left_alone(self):
        with patch.object(_cpu_engine, "entry_points", lambda group: ["plugin"]):
            _cpu_engine.select_cpu_engine()
        self.assertNotIn(SWITCH, os.environ)

    def test_the_users_choice_stands(self):
        for choice, num_installs, has_cuda in (("0", 0, False), ("1", 1, True)):
            with self.subTest(choice=choice):
                self.num_installs = 0
                with (
                    patch.dict(os.environ, {SWITCH: choice}),
                    patch.object(torch.cuda, "is_available", return_value=has_cuda),
                ):
                    _cpu_engine.select_cpu_engine()
                    self.assertEqual(os.environ[SWITCH], choice)
                self.assertEqual(self.num_installs, num_installs)

    def test_without_cpu_kernels_nothing_changes(self):
        with patch.object(_cpu_engine, "find_spec", lambda name: None):
            _cpu_engine.select_cpu_engine()
        self.assertNotIn(SWITCH, os.environ)
        self.assertEqual(self.num_installs, 0)

    def test_compiled_cpu_kernels_stay(self):
        with patch.object(_cpu_engine, "_has_compiled_cpu_kernels", lambda: True):
            _cpu_engine.select_cpu_engine()
        self.assertEqual(os.environ[SWITCH], "1")
        self.assertEqual(self.num_installs, 0)


if __name__ == "__main__":
    unittest.main()
