"""Both strategies of the mamba radix cache work on the CPU."""

import json
import os
import tempfile
import unittest
from pathlib import Path

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")

from sglang.srt.arg_groups.overrides import resolved_view
from sglang.srt.environ import envs
from sglang.srt.server_args import ServerArgs
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import (
    CustomTestCase,
    enter_scope,
    maybe_stub_sgl_kernel,
)

maybe_stub_sgl_kernel()

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

LAYERS = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
CONFIG = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": len(LAYERS),
    "layer_types": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "intermediate_size": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "dtype": "bfloat16",
}


class TestMambaStrategyOnCpu(CustomTestCase):
    def setUp(self):
        super().setUp()
        self.model = enter_scope(self, tempfile.TemporaryDirectory())
        (Path(self.model) / "config.json").write_text(json.dumps(CONFIG))
        # What a resolution sets is undone after each test.
        enter_scope(self, envs.SGLANG_MAMBA_CONV_DTYPE.override("bfloat16"))

    def resolved(self, **arguments):
        server_args = ServerArgs(model_path=self.model, device="cpu", **arguments)
        server_args.resolve_once()
        return resolved_view(server_args)

    def test_a_hybrid_model_takes_extra_buffer_by_itself(self):
        server_args = self.resolved()
        self.assertEqual(server_args.mamba_radix_cache_strategy, "extra_buffer")
        self.assertFalse(server_args.disable_overlap_schedule)
        server_args = self.resolved(disable_overlap_schedule=True)
        self.assertEqual(server_args.mamba_radix_cache_strategy, "no_buffer")

    def test_no_buffer_with_overlap_is_an_error_that_names_both_flags(self):
        with self.assertRaises(ValueError) as caught:
            self.resolved(mamba_radix_cache_strategy="no_buffer")
        self.assertIn("--disable-overlap-schedule", str(caught.exception))
        self.assertIn("--mamba-radix-cache-strategy", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
