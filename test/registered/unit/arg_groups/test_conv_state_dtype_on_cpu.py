"""The conv state of a hybrid model has the model's dtype on the CPU."""

import json
import os
import tempfile
import unittest
from pathlib import Path

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")

from sglang.srt.environ import envs
from sglang.srt.server_args import ServerArgs
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, enter_scope

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 256,
}
CONV_DTYPE = envs.SGLANG_MAMBA_CONV_DTYPE


class TestConvStateDtypeOnCpu(CustomTestCase):
    def setUp(self):
        super().setUp()
        self.model = enter_scope(self, tempfile.TemporaryDirectory())
        (Path(self.model) / "config.json").write_text(json.dumps(CONFIG))
        # What a resolution sets is undone after each test.
        enter_scope(self, CONV_DTYPE.override("bfloat16"))
        CONV_DTYPE.clear()

    def resolve(self, dtype):
        ServerArgs(model_path=self.model, device="cpu", dtype=dtype).resolve_once()

    def test_it_follows_the_models_dtype_unless_the_user_sets_another(self):
        for dtype in ("float32", "bfloat16"):
            with self.subTest(dtype=dtype):
                CONV_DTYPE.clear()
                self.resolve(dtype)
                self.assertTrue(CONV_DTYPE.is_set())
                self.assertEqual(CONV_DTYPE.get(), dtype)
        CONV_DTYPE.set("float16")
        self.resolve("float32")
        self.assertEqual(CONV_DTYPE.get(), "float16")


if __name__ == "__main__":
    unittest.main()
