"""An error that the user can put right ends the command with its message alone."""

from patches.engine.edits import Insert, ReplaceExpression, ReplaceStatement
from patches.engine.patch import Edit, Patch
from patches.engine.place import Find

MODULE = "sglang.srt.arg_groups.launch_error"
SCHEDULER = "srt/managers/scheduler.py"


def end_with_message(file: str, scope: str = "") -> Edit:
    """Let a command that runs the server end with the message of a launch error."""
    return ReplaceStatement(
        file=file,
        scope=scope,
        at=Find("call statement", "run_server"),
        code=f"""
        from {MODULE} import exit_on_launch_error

        with exit_on_launch_error():
            run_server(server_args)
        """,
    )


COMMANDS = (
    end_with_message("launch_server.py"),
    end_with_message("cli/serve.py", scope="_run_llm"),
)

LOADING = (
    Insert(
        file=SCHEDULER,
        before=Find("import", "sglang.srt.beam_search.coordinator"),
        code=f"from {MODULE} import message_or",
    ),
    ReplaceExpression(
        file=SCHEDULER,
        scope="run_scheduler_process",
        at=Find("assign", "traceback"),
        code="message_or(get_exception_traceback)",
    ),
)

PATCH = Patch(
    number=207,
    title="[Misc] End the command with the message of an error users can put right",
    message="""\
## Motivation

A checkpoint that cannot be served or a flag that contradicts another ends
`sglang serve` in a traceback of resolution hooks. The sentence that says what to do is
its last line, below files that the user has never heard of.

## Modifications

- `LaunchError` is a `ValueError` whose message is all that a user needs.
- `sglang.launch_server` and `sglang serve` print that message and end with status 1.
- A scheduler that meets one while it loads logs the message alone.
- `Engine` and `run_server` raise it, as before.
""",
    edits=(*COMMANDS, *LOADING),
    overlay=("srt/arg_groups/launch_error.py",),
    tests=("unit/arg_groups/test_launch_error.py",),
)
