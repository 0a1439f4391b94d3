"""Which NVFP4 backend a platform gets, and b12x by its name."""

import itertools
import json
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from sglang.srt.arg_groups import overrides
from sglang.srt.arg_groups.choices import FP4_GEMM_RUNNER_BACKEND_CHOICES
from sglang.srt.arg_groups.modelopt_mixed_moe import moe_runner_backend_without_sm100
from sglang.srt.layers.quantization import fp4_utils
from sglang.srt.layers.quantization.fp4_utils import Fp4GemmRunnerBackend
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

EXPERT = "model.language_model.layers.0.mlp.experts.0.up_proj"
PLATFORM = {"is_sm100": False, "is_sm120": False, "device_capability": (9, 0)}


def initialized(backend, **platform):
    """The backend that a request becomes on a platform that is no CPU."""
    kernel = SimpleNamespace(fp4_gemm_runner_backend=backend)
    context, facts = SimpleNamespace(kernel=kernel), {**PLATFORM, **platform}
    with (
        patch.object(fp4_utils, "get_exec", lambda: context),
        patch.object(fp4_utils, "get_platform", lambda: SimpleNamespace(**facts)),
        patch.object(fp4_utils, "is_cpu", lambda: False),
        patch.object(fp4_utils, "FP4_GEMM_RUNNER_BACKEND", None),
    ):
        fp4_utils.initialize_fp4_gemm_config()
        return fp4_utils.get_fp4_gemm_runner_backend()


class TestFp4GemmBackend(CustomTestCase):
    def test_every_choice_but_auto_is_a_backend(self):
        self.assertIn("flashinfer_b12x", FP4_GEMM_RUNNER_BACKEND_CHOICES)
        for choice in FP4_GEMM_RUNNER_BACKEND_CHOICES:
            self.assertEqual(Fp4GemmRunnerBackend(choice).value, choice)

    def test_b12x_is_taken_where_it_is_asked_for_and_has_flashinfers_name(self):
        from flashinfer import mm_fp4

        auto = initialized("auto", is_sm120=True)
        self.assertTrue(auto.is_flashinfer_cutlass())
        backend = initialized("flashinfer_b12x", is_sm120=True)
        self.assertTrue(mm_fp4.has_backend(backend.get_flashinfer_backend()))

    def test_b12x_needs_sm12x(self):
        with self.assertRaisesRegex(ValueError, "requires SM12x"):
            initialized("flashinfer_b12x")

    def test_b12x_needs_a_flashinfer_that_has_it(self):
        import flashinfer

        with patch.object(flashinfer, "mm_fp4", SimpleNamespace()):
            with self.assertRaisesRegex(ValueError, "mm_fp4 has the backend b12x"):
                initialized("flashinfer_b12x", is_sm120=True)


class TestExpertsOfAMixedCheckpoint(CustomTestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def mixed(self, *algorithms, in_config=True):
        layers = {f"{EXPERT}{i}": {"quant_algo": a} for i, a in enumerate(algorithms)}
        layers["model.layers.0.self_attn.q_proj"] = {"quant_algo": "FP8"}
        config = {"quantized_layers": layers} if in_config else {}
        if not in_config:
            content = {"quantization": {"quantized_layers": layers}}
            (self.folder / "hf_quant_config.json").write_text(json.dumps(content))
        return SimpleNamespace(
            quantization="modelopt_mixed",
            model_path=str(self.folder),
            hf_config=SimpleNamespace(quantization_config=config),
        )

    def test_the_experts_decide(self):
        for in_config, (algorithms, backend) in itertools.product(
            (True, False),
            (
                (["NVFP4", "NVFP4"], "flashinfer_cutlass"),
                (["W4A16_NVFP4"], "marlin"),
                (["FP8"], "auto"),
                ([], "auto"),
            ),
        ):
            with self.subTest(in_config=in_config, algorithms=algorithms):
                model = self.mixed(*algorithms, in_config=in_config)
                self.assertEqual(moe_runner_backend_without_sm100(model, None), backend)

    def test_experts_of_two_kinds_are_an_error(self):
        model = self.mixed("NVFP4", "W4A16_NVFP4")
        with self.assertRaisesRegex(ValueError, "NVFP4 and W4A16_NVFP4"):
            moe_runner_backend_without_sm100(model, None)

    def test_sm12x_resolves_auto_whether_quantization_is_given_or_not(self):
        for asked in ("modelopt_mixed", None):
            for platform, backend in (
                ("is_sm120", "flashinfer_cutlass"),
                ("is_hip", None),
            ):
                with self.subTest(asked=asked, platform=platform):
                    resolved = self.resolve_auto(asked, platform)
                    self.assertEqual(resolved.get("moe_runner_backend"), backend)

    def resolve_auto(self, quantization, platform):
        names = ("is_sm100", "is_sm110", "is_sm120", "is_npu", "is_hip")
        facts = SimpleNamespace(**{**dict.fromkeys(names), platform: True})
        view = SimpleNamespace(moe_runner_backend="auto", quantization=quantization)
        with (
            patch.object(overrides, "get_platform", lambda: facts),
            patch.object(overrides, "model_config_of", lambda _: self.mixed("NVFP4")),
        ):
            return overrides._moe_runner_backend_quant_constraints(view)


if __name__ == "__main__":
    unittest.main()
