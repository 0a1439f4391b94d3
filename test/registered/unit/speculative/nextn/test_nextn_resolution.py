"""What a request for NEXTN becomes."""

import json
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

from head_files import dense_head, write_checkpoint

from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.arg_groups.remap.reasons import reason_for
from sglang.srt.speculative.nextn.algorithm import RULE, resolve_nextn_algorithm
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, enter_scope

register_cpu_ci(est_time=5, suite="base-a-test-cpu")


def resolve(folder, **settings):
    """The algorithm, and the reason that the remap report gets."""
    config = json.loads((folder / "config.json").read_text())
    server_args = arguments(folder, **settings)
    algorithm = resolve_nextn_algorithm(resolving_view(server_args), config)
    reason = reason_for(server_args, RULE, "speculative_algorithm", algorithm)
    return algorithm, reason.why if reason else None


def arguments(folder, **settings):
    """The settings that decide, as resolution leaves them by default."""
    defaults = {
        "model_path": str(folder),
        "revision": None,
        "load_format": "auto",
        "speculative_draft_model_path": None,
        "speculative_draft_load_format": None,
        "_speculative_draft_quantization_explicitly_set": False,
        "weight_cache_mode": "off",
        "startup_weight_load_mode": "serial",
    }
    return SimpleNamespace(**{**defaults, **settings})


class TestNextnResolution(CustomTestCase):
    def setUp(self):
        super().setUp()
        self.root = Path(enter_scope(self, tempfile.TemporaryDirectory()))
        self.dense = write_checkpoint(self.root / "dense", dense_head())

    def as_architecture(self, name):
        """The same checkpoint under the name of another architecture."""
        config = json.loads((self.dense / "config.json").read_text())
        config["architectures"] = [name]
        (self.dense / "config.json").write_text(json.dumps(config))
        return self.dense

    def test_a_checkpoint_with_a_head_keeps_nextn_and_gives_no_reason(self):
        self.assertEqual(resolve(self.dense), ("NEXTN", None))

    def test_a_draft_path_that_is_the_target_itself_keeps_nextn(self):
        path = str(self.dense)
        algorithm, _ = resolve(self.dense, speculative_draft_model_path=path)
        self.assertEqual(algorithm, "NEXTN")

    def test_a_setting_for_another_draft_gives_eagle_and_is_the_reason(self):
        quantization = "_speculative_draft_quantization_explicitly_set"
        for setting, value, reason in (
            ("speculative_draft_model_path", "/elsewhere", "/elsewhere"),
            ("load_format", "sharded_state", "sharded_state"),
            (
                "speculative_draft_load_format",
                "dummy",
                "--speculative-draft-load-format",
            ),
            (quantization, True, "--speculative-draft-model-quantization"),
            ("weight_cache_mode", "client", "--weight-cache-mode"),
            ("startup_weight_load_mode", "overlap", "--startup-weight-load-mode"),
        ):
            with self.subTest(setting=setting):
                algorithm, why = resolve(self.dense, **{setting: value})
                self.assertEqual(algorithm, "EAGLE")
                self.assertIn(reason, why)
                self.assertNotIn("\n", why)
                self.assertFalse(why.endswith("."))

    def test_an_architecture_that_only_eagle_serves_gives_eagle_and_names_it(self):
        algorithm, why = resolve(self.as_architecture("Qwen3NextForCausalLM"))
        self.assertEqual(algorithm, "EAGLE")
        self.assertIn("Qwen3NextForCausalLM", why)

    def test_a_head_of_two_layers_gives_eagle_also_where_its_files_are_not_read(self):
        config = json.loads((self.dense / "config.json").read_text())
        config["text_config"]["mtp_num_hidden_layers"] = 2
        (self.dense / "config.json").write_text(json.dumps(config))
        algorithm, why = resolve(self.dense, load_format="dummy")
        self.assertEqual(algorithm, "EAGLE")
        self.assertIn("2 MTP layers", why)

    def test_a_model_without_a_head_is_refused_and_told_the_ways_on(self):
        folder = self.as_architecture("LlamaForCausalLM")
        with self.assertRaises(ValueError) as caught:
            resolve(folder)
        for words in (
            "LlamaForCausalLM",
            str(folder),
            "--speculative-draft-model-path",
            "leave --speculative-algorithm out",
        ):
            self.assertIn(words, str(caught.exception))

    def test_a_broken_head_is_refused_before_anything_loads(self):
        for missing in ("mtp.fc.weight", "mtp.norm.weight"):
            with self.subTest(missing=missing):
                head = dense_head()
                del head[missing]
                folder = write_checkpoint(self.root / missing, head)
                with self.assertRaisesRegex(ValueError, missing):
                    resolve(folder)


if __name__ == "__main__":
    unittest.main()
