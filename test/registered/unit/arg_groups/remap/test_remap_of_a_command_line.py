"""What the user set and does not get is reported once, and refused on demand."""

import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")

from sglang.srt.arg_groups.remap.report import RemapError, log_remap_report
from sglang.srt.arg_groups.remap.requested import record_keywords
from sglang.srt.server_args import ServerArgs, prepare_server_args
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

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


class TestRemapOfACommandLine(CustomTestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model = folder.name
        (Path(self.model) / "config.json").write_text(json.dumps(CONFIG))
        patcher = patch("logging.basicConfig")
        patcher.start()
        self.addCleanup(patcher.stop)

    def resolve(self, *argv):
        fixed = ("--model-path", self.model, "--device", "cpu")
        server_args = prepare_server_args([*fixed, *argv])
        server_args.resolve_once()
        return server_args

    def report(self, server_args):
        with self.assertLogs("sglang.srt.arg_groups.remap", "INFO") as logs:
            log_remap_report(server_args)
        return [r.getMessage() for r in logs.records if r.levelname == "WARNING"]

    def test_a_remap_is_one_line_with_asked_effective_and_the_rule(self):
        server_args = self.resolve(
            "--attention-backend", "flashmla", "--page-size", "16"
        )
        (line,) = self.report(server_args)
        self.assertTrue(
            line.startswith(
                "--page-size: asked 16, using 64, by _mla_backend_page_constraints: "
            )
        )
        self.assertTrue(line.endswith("To silence this line: --page-size 64."))

    def test_typing_what_the_line_says_silences_it(self):
        server_args = self.resolve(
            "--attention-backend", "flashmla", "--page-size", "64"
        )
        self.assertEqual(server_args._remaps, ())

    def test_what_nobody_asked_for_is_no_remap(self):
        server_args = self.resolve("--moe-a2a-backend", "deepep", "--tp-size", "2")
        self.assertEqual(server_args.resolved_dict()["ep_size"], 2)
        self.assertEqual(server_args._remaps, ())

    def test_a_keyword_asks_even_for_the_default(self):
        keywords = {"moe_a2a_backend": "deepep", "tp_size": 2, "ep_size": 1}
        keywords = {"model_path": self.model, "device": "cpu", **keywords}
        server_args = ServerArgs(**keywords)
        record_keywords(server_args, keywords)
        server_args.resolve_once()
        (remap,) = server_args._remaps
        self.assertEqual(
            (remap.setting, remap.asked, remap.effective), ("ep_size", 1, 2)
        )

    def test_error_lists_every_remap_and_refuses(self):
        with self.assertRaises(RemapError) as caught:
            self.resolve(
                *("--enable-symm-mem", "--sampling-backend", "flashinfer"),
                *("--remap-policy", "error"),
            )
        message = str(caught.exception)
        self.assertIn("2 settings would not run as asked", message)
        self.assertIn("--enable-symm-mem", message)
        self.assertIn("--sampling-backend", message)

    def test_silent_logs_nothing_and_keeps_the_facts(self):
        server_args = self.resolve("--enable-symm-mem", "--remap-policy", "silent")
        with self.assertNoLogs("sglang.srt.arg_groups.remap"):
            log_remap_report(server_args)
        self.assertEqual([r.setting for r in server_args._remaps], ["enable_symm_mem"])


if __name__ == "__main__":
    unittest.main()
