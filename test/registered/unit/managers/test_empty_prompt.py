"""A prompt without tokens is a bad request."""

import unittest
from types import SimpleNamespace
from unittest.mock import patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers import tokenizer_manager
from sglang.srt.managers.io_struct import GenerateReqInput
from sglang.srt.managers.utils import validate_input_length

register_cpu_ci(est_time=5, suite="base-a-test-cpu")


class TestEmptyPrompt(CustomTestCase):
    def test_the_scheduler_refuses_a_prompt_without_tokens(self):
        empty = SimpleNamespace(origin_input_ids=[])
        for allow_auto_truncate in (False, True):
            message = validate_input_length(empty, 10, allow_auto_truncate)
            self.assertIn("no tokens", message)
        full = SimpleNamespace(origin_input_ids=[1])
        self.assertIsNone(validate_input_length(full, 10, False))

    def test_the_tokenizer_manager_refuses_it_with_the_length_checks(self):
        features = SimpleNamespace(enable_encoder_swa_bounded_replay=False)
        context = SimpleNamespace(features=features)
        manager = SimpleNamespace(
            context_len=10,
            num_reserved_tokens=0,
            _validate_joint_schema_request=lambda *arguments: None,
        )
        validate = tokenizer_manager.TokenizerManager._validate_one_request
        with patch.object(tokenizer_manager, "get_exec", lambda: context):
            with self.assertRaisesRegex(ValueError, "no tokens"):
                validate(manager, GenerateReqInput(text=""), [])

    def test_empty_embeddings_are_an_error_that_names_them(self):
        for embeds in ([], [[]]):
            request = GenerateReqInput(input_embeds=embeds)
            with self.assertRaisesRegex(ValueError, "input_embeds cannot be empty"):
                request.normalize_batch_and_arguments()


if __name__ == "__main__":
    unittest.main()
