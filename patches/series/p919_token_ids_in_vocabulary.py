"""A token id that the model has no embedding for is a bad request."""

from patches.engine.edits import Insert
from patches.engine.patch import Patch
from patches.engine.place import Find

PATCH = Patch(
    number=919,
    title="[Fix] Reject token ids outside the vocabulary, which crashed the server",
    message="""\
## Motivation

`/generate` and `/v1/completions` accept a prompt as token ids. An id that is negative
or not below the vocabulary's size reaches the embedding lookup: an `IndexError` on a
CPU, a device-side assert on CUDA. Either ends the scheduler, so that one request stops
the server for everybody. `token_ids_logprob` and `logit_bias` are checked already.

## Modifications

Check the prompt's ids in the tokenizer manager, beside its length, and answer with
status 400 and a message that names the id and the valid range. Not checked: prompts
with images, videos or audio, whose placeholders never reach the lookup, and requests
with a LoRA adapter, which may bring tokens of its own. The bound is the text
configuration's vocabulary, which sizes the embedding table.
""",
    edits=(
        Insert(
            file="srt/managers/tokenizer_manager.py",
            scope="TokenizerManager",
            after="_validate_one_request",
            code='''
            def _validate_token_ids(
                self,
                obj: Union[GenerateReqInput, EmbeddingReqInput],
                input_ids: Optional[List[int]],
            ) -> None:
                """Every id of a text prompt needs a row in the embedding table."""
                if not input_ids or obj.contains_mm_input():
                    return
                if getattr(obj, "lora_path", None) is not None:
                    return
                vocab_size = self.model_config.hf_text_config.vocab_size
                for token_id in (min(input_ids), max(input_ids)):
                    if not 0 <= token_id < vocab_size:
                        raise ValueError(
                            f"The prompt contains out-of-vocabulary token id "
                            f"{token_id}; valid range is [0, {vocab_size})."
                        )
            ''',
        ),
        Insert(
            file="srt/managers/tokenizer_manager.py",
            scope="TokenizerManager._validate_one_request",
            before=Find("if", mentions=("input_token_num", "context_len"), nth=0, of=1),
            code="self._validate_token_ids(obj, input_ids)",
        ),
    ),
    tests=("unit/managers/test_token_ids_in_vocabulary.py",),
)
