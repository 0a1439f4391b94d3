"""The answer to a draft path that is not needed names the model that was given."""

import json
import os
import tempfile
import unittest
from pathlib import Path

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")

from sglang.srt.server_args import ServerArgs
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=10, suite="base-a-test-cpu")

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 256,
}


class TestDraftPathWarning(CustomTestCase):
    def test_the_architecture_is_named_and_no_other_model(self):
        with tempfile.TemporaryDirectory() as folder:
            config = {**CONFIG, "architectures": ["Glm4MoeForCausalLM"]}
            (Path(folder) / "config.json").write_text(json.dumps(config))
            server_args = ServerArgs(
                model_path=folder,
                device="cpu",
                speculative_algorithm="EAGLE",
                speculative_draft_model_path=folder,
            )
            with self.assertLogs("sglang", "WARNING") as logs:
                server_args.resolve_once()
        messages = [record.getMessage() for record in logs.records]
        about = [line for line in messages if "speculative-draft-model-path" in line]
        self.assertEqual(len(about), 1)
        self.assertIn("Glm4MoeForCausalLM", about[0])
        self.assertFalse(any("DeepSeek" in line for line in messages))


if __name__ == "__main__":
    unittest.main()
