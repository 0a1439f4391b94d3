"""A prompt without tokens is a bad request."""

import unittest
from types import SimpleNamespace

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

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

    def test_empty_embeddings_are_an_error_that_names_them(self):
        for embeds in ([], [[]]):
            request = GenerateReqInput(input_embeds=embeds)
            with self.assertRaisesRegex(ValueError, "input_embeds cannot be empty"):
                request.normalize_batch_and_arguments()


if __name__ == "__main__":
    unittest.main()
