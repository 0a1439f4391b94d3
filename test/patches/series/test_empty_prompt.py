"""Patch 911: a prompt without tokens is a bad request."""

from types import SimpleNamespace

import pytest

from sglang.srt.managers.io_struct import GenerateReqInput
from sglang.srt.managers.utils import validate_input_length


@pytest.mark.parametrize("allow_auto_truncate", [False, True])
def test_the_scheduler_refuses_a_prompt_without_tokens(allow_auto_truncate):
    empty = SimpleNamespace(origin_input_ids=[])
    message = validate_input_length(empty, 10, allow_auto_truncate)
    assert "no tokens" in message
    assert (
        validate_input_length(SimpleNamespace(origin_input_ids=[1]), 10, False) is None
    )


@pytest.mark.parametrize("embeds", [[], [[]]])
def test_empty_embeddings_are_an_error_that_names_them(embeds):
    with pytest.raises(ValueError, match="input_embeds cannot be empty"):
        GenerateReqInput(input_embeds=embeds).normalize_batch_and_arguments()
