"""Whether the worker serves a checkpoint's head, from its configuration and headers."""

import tempfile
import unittest
from pathlib import Path
from unittest.mock import patch

from head_files import (
    DENSE_CONFIG,
    MOE_CONFIG,
    bf16,
    dense_head,
    moe_head,
    trunk,
    with_text,
    write_checkpoint,
    write_shard,
)

from sglang.srt.speculative.nextn.completeness import IncompleteHeadError
from sglang.srt.speculative.nextn.safetensors_header import CheckpointError
from sglang.srt.speculative.nextn.support import nextn_support
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, enter_scope

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 2}


class TestNextnSupport(CustomTestCase):
    def setUp(self):
        super().setUp()
        self.root = Path(enter_scope(self, tempfile.TemporaryDirectory()))

    def support_of(self, head, config=DENSE_CONFIG):
        return nextn_support(str(write_checkpoint(self.root, head, config)), config)

    def test_a_complete_head_is_native(self):
        for head, config in ((dense_head(), DENSE_CONFIG), (moe_head(), MOE_CONFIG)):
            support = self.support_of(head, config)
            self.assertTrue(support.native)
            self.assertTrue(support.has_head)
            self.assertIsNone(support.error)
            self.assertEqual(support.plan.problems, ())
            self.assertEqual(support.draft_architecture, "Qwen3_5ForCausalLMMTP")
            counted = f"{len(head)} MTP tensors in 1 of 2 shards"
            self.assertIn(counted, support.reason)

    def test_an_incomplete_head_is_an_error_not_an_exception(self):
        head = dense_head()
        del head["mtp.fc.weight"]
        support = self.support_of(head)
        self.assertFalse(support.native)
        self.assertTrue(support.has_head)
        self.assertIsInstance(support.error, IncompleteHeadError)
        self.assertIn("mtp.fc.weight", support.reason)

    def test_a_dropped_head_is_an_error(self):
        support = self.support_of({})
        self.assertIs(support.has_head, False)
        self.assertIsInstance(support.error, IncompleteHeadError)

    def test_a_damaged_shard_is_an_error(self):
        folder = write_checkpoint(self.root, dense_head())
        (folder / "model-2.safetensors").write_bytes(b"short")
        support = nextn_support(str(folder), DENSE_CONFIG)
        self.assertFalse(support.native)
        self.assertIsInstance(support.error, CheckpointError)

    def test_weights_that_are_not_here_yet_are_checked_later(self):
        support = nextn_support("nobody/has-this-model", DENSE_CONFIG)
        self.assertTrue(support.native)
        self.assertIsNone(support.has_head)
        self.assertIn("not on this machine yet", support.reason)

    def test_a_load_format_without_weights_looks_at_no_file(self):
        support = nextn_support(str(self.root), DENSE_CONFIG, check_weights=False)
        self.assertTrue(support.native)
        self.assertIsNone(support.error)

    def test_a_config_without_a_head_is_enough_to_say_no(self):
        config = with_text(DENSE_CONFIG, mtp_num_hidden_layers=0)
        support = nextn_support("nobody/has-this-model", config)
        self.assertFalse(support.native)
        self.assertIs(support.has_head, False)

    def test_other_weight_formats_are_left_to_others(self):
        (self.root / "pytorch_model.bin").write_bytes(b"")
        (self.root / "model.gguf").write_bytes(b"GGUF")
        for path in (self.root, self.root / "model.gguf"):
            support = nextn_support(str(path), DENSE_CONFIG)
            self.assertFalse(support.native)
            self.assertIsNone(support.error)
        support = nextn_support(str(self.root), DENSE_CONFIG)
        self.assertIn("safetensors weights only", support.reason)

    def test_a_known_architecture_that_is_not_native_says_why(self):
        for layer in (2, 1):
            weights = {**trunk(), f"model.layers.{layer}.eh_proj.weight": bf16(4, 8)}
            write_shard(self.root / "model.safetensors", weights)
            support = nextn_support(str(self.root), DEEPSEEK)
            self.assertFalse(support.native)
            self.assertIsNone(support.error)
            self.assertEqual(support.draft_architecture, "DeepseekV3ForCausalLMNextN")
            self.assertIs(support.has_head, layer == 2)
            why = "DeepseekV3ForCausalLM is not served by the native worker"
            self.assertIn(why, support.reason)

    def test_an_unknown_architecture_has_no_head_that_sglang_knows(self):
        config = {"architectures": ["LlamaForCausalLM"]}
        support = nextn_support(str(self.root), config)
        self.assertFalse(support.native)
        self.assertIsNone(support.draft_architecture)
        self.assertIn("LlamaForCausalLM", support.reason)

    def test_a_repository_in_the_local_cache_is_found(self):
        from huggingface_hub import constants

        repository = self.root / "models--some--model"
        write_checkpoint(repository / "snapshots" / "abc", dense_head())
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text("abc")
        with patch.object(constants, "HF_HUB_CACHE", str(self.root)):
            support = nextn_support("some/model", DENSE_CONFIG)
        self.assertTrue(support.native)
        self.assertTrue(support.has_head)


if __name__ == "__main__":
    unittest.main()
