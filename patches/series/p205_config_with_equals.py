"""A config file given as --config=FILE is read."""

from patches.engine.edits import Insert
from patches.engine.patch import Patch
from patches.engine.place import Find

PATCH = Patch(
    number=205,
    title="[Fix] Read the config file of --config=FILE",
    message="""\
## Motivation

`prepare_server_args` looks for the word `--config`. Written as `--config=serve.yaml`,
argparse accepts it and nothing reads the file: every setting in it is dropped without a
word.

## Modifications

Split the word, so that both forms do the same.
""",
    edits=(
        Insert(
            file="srt/server_args.py",
            scope="prepare_server_args",
            before=Find("if", mentions=("--config", "argv")),
            code="""
            argv = [
                part
                for word in argv
                for part in (
                    word.split("=", 1) if word.startswith("--config=") else [word]
                )
            ]
            """,
        ),
    ),
    tests=("unit/server_args/test_config_with_equals.py",),
)
