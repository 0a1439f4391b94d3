"""A token id that the model has no embedding for is a bad request."""

import unittest
from types import SimpleNamespace

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput
from sglang.srt.managers.tokenizer_manager import TokenizerManager

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

VOCAB_SIZE = 8


class TestTokenIdsInVocabulary(CustomTestCase):
    def validate(self, request, input_ids):
        config = SimpleNamespace(hf_text_config=SimpleNamespace(vocab_size=VOCAB_SIZE))
        manager = SimpleNamespace(model_config=config)
        TokenizerManager._validate_token_ids(manager, request, input_ids)

    def test_an_id_outside_is_an_error_that_names_it_and_the_range(self):
        for request in (GenerateReqInput(), EmbeddingReqInput()):
            for outside in (-1, VOCAB_SIZE, 10**9):
                message = rf"token id {outside}; valid range is \[0, {VOCAB_SIZE}\)"
                with self.assertRaisesRegex(ValueError, message):
                    self.validate(request, [3, outside, 0])

    def test_every_id_of_the_vocabulary_is_let_through(self):
        self.validate(GenerateReqInput(), list(range(VOCAB_SIZE)))

    def test_a_prompt_without_ids_is_not_its_business(self):
        for nothing in (None, []):
            self.validate(GenerateReqInput(), nothing)

    def test_placeholders_of_images_and_tokens_of_an_adapter_are_let_through(self):
        outside = [VOCAB_SIZE]
        self.validate(GenerateReqInput(image_data="image.png"), outside)
        self.validate(GenerateReqInput(lora_path="adapter"), outside)


if __name__ == "__main__":
    unittest.main()
