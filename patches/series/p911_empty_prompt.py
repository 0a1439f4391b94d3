"""A prompt without tokens is a bad request, not the end of the scheduler."""

from patches.engine.edits import Insert
from patches.engine.patch import Patch
from patches.engine.place import Find

PATCH = Patch(
    number=911,
    title="[Fix] Reject prompts without tokens instead of crashing the scheduler",
    message="""\
## Motivation

A tokenizer that adds no BOS token turns the text "" into no tokens at all. The
request reaches the scheduler, and the empty prefill batch raises in the logits
processor: one request stops the server for everybody. `/v1/completions` has a check of
its own; `/generate`, `Engine.generate`, and an empty row of a batch have none.

## Modifications

Reject it where every other length is checked, in the tokenizer manager, with status
400. A request of a session may be empty there, because its history supplies the
prompt, so the scheduler, which knows the history, checks again. Embedding requests
that fail the scheduler's check are now aborted too; they were queued and run.
""",
    edits=(
        Insert(
            file="srt/managers/io_struct.py",
            scope="GenerateReqInput._determine_batch_size",
            before=Find("if", mentions=("input_embeds", "float")),
            code="""
            if not self.input_embeds or not self.input_embeds[0]:
                raise ValueError("input_embeds cannot be empty.")
            """,
        ),
        Insert(
            file="srt/managers/tokenizer_manager.py",
            scope="TokenizerManager._validate_one_request",
            before=Find("if", mentions=("input_token_num", "context_len"), nth=0, of=1),
            code="""
            if (
                input_ids is not None
                and len(input_ids) == 0
                and obj.input_embeds is None
                and getattr(obj, "session_params", None) is None
            ):
                raise ValueError("The prompt has no tokens; at least one is needed.")
            """,
        ),
        Insert(
            file="srt/managers/utils.py",
            scope="validate_input_length",
            before=Find("if", mentions=("origin_input_ids", "max_req_input_len")),
            code="""
            if len(req.origin_input_ids) == 0:
                return "The prompt has no tokens; at least one is needed."
            """,
        ),
        # An embedding request whose length is wrong was queued as if it were right.
        Insert(
            file="srt/managers/scheduler.py",
            scope="Scheduler._handle_embedding_request",
            before=Find(
                "call statement",
                "self._add_request_to_queue",
                within=Find("if", mentions=("error_msg",)),
            ),
            code="req.set_finish_with_abort(error_msg)",
        ),
    ),
    tests=("unit/managers/test_empty_prompt.py",),
)
