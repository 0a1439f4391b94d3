"""Every architecture that SGLang drafts for is known, and is native or says why not."""

import ast
import importlib.util
import re
import unittest
from pathlib import Path

from sglang.srt.speculative.nextn.architectures import (
    ARCHITECTURES,
    find_architecture,
    register_architecture,
)
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

SRT = Path(importlib.util.find_spec("sglang").submodule_search_locations[0]) / "srt"

# Compared in the same function and no target of NEXTN: another algorithm's draft.
OTHER_ALGORITHMS = {"DSparkMiniMaxDraftModel", "DeepseekV4ForCausalLMDSpark"}


def draft_renames():
    """Architecture names in the function that turns a target into a draft."""
    tree = ast.parse((SRT / "configs/model_config.py").read_text())
    (function,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "_config_draft_model"
    )
    constants = {
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    pattern = re.compile(r"[A-Z]\w*(For[A-Z]\w+|MTP|_V3|DraftModel)")
    return {name for name in constants if pattern.fullmatch(name)} - OTHER_ALGORITHMS


class TestHeadArchitectures(CustomTestCase):
    def test_every_architecture_that_sglang_drafts_for_is_registered(self):
        drafts = {row.draft_architecture for row in ARCHITECTURES.values()}
        renames = draft_renames()
        self.assertGreater(len(renames), 40)
        self.assertLessEqual(renames, ARCHITECTURES.keys() | drafts)

    def test_every_draft_class_exists(self):
        models = (SRT / "models").rglob("*.py")
        sources = "\n".join(path.read_text() for path in models)
        for row in ARCHITECTURES.values():
            self.assertIn(f"class {row.draft_architecture}(", sources)

    def test_an_architecture_is_native_or_says_why_not(self):
        for row in ARCHITECTURES.values():
            self.assertEqual(row.native, row.reason == "")

    def test_qwen3_5_is_native(self):
        native = {name for name, row in ARCHITECTURES.items() if row.native}
        self.assertIn("Qwen3_5ForConditionalGeneration", native)
        self.assertIn("Qwen3_5MoeForConditionalGeneration", native)

    def test_head_tensors_are_told_from_the_targets(self):
        deepseek, outer = "DeepseekV3ForCausalLM", "model.mtp.layers.0.enorm.m.weight"
        for architecture, inside, outside in (
            (
                "Qwen3_5ForCausalLM",
                "mtp.fc.weight",
                "model.layers.4.mlp.up_proj.weight",
            ),
            (deepseek, "model.layers.61.eh_proj.weight", "model.layers.6.x"),
            (deepseek, "model.layers.61.enorm.weight", "model.layers.610.x"),
            ("MiMoForCausalLM", "model.mtp_layers.0.input_proj.weight", "model.norm.x"),
            ("LongcatFlashForCausalLM", outer, "model.mtpx"),
            ("NemotronHForCausalLM", "mtp.layers.0.x", "backbone.layers.0.x"),
        ):
            with self.subTest(architecture=architecture, inside=inside):
                config = {"architectures": [architecture], "num_hidden_layers": 61}
                is_head_tensor = find_architecture(config).head_matcher(config)
                self.assertTrue(is_head_tensor(inside))
                self.assertFalse(is_head_tensor(outside))

    def test_a_name_is_registered_once(self):
        with self.assertRaisesRegex(ValueError, "registered already"):
            register_architecture(ARCHITECTURES["Qwen3_5ForCausalLM"])

    def test_an_unknown_architecture_has_no_row(self):
        for config in ({"architectures": ["LlamaForCausalLM"]}, {}):
            self.assertIsNone(find_architecture(config))


if __name__ == "__main__":
    unittest.main()
