"""The conv state of a hybrid model has the model's dtype on the CPU."""

from patches.engine.edits import AddImport, Insert
from patches.engine.patch import Patch
from patches.engine.place import Find

FILE = "srt/arg_groups/mamba_hook.py"

PATCH = Patch(
    number=914,
    title="[CPU] Keep the conv state of hybrid models in the model's dtype",
    message="""\
## Motivation

The conv state of a mamba or linear-attention layer is bfloat16 unless
`SGLANG_MAMBA_CONV_DTYPE` says otherwise. With `--dtype float32` its values, which are
activations, are rounded at every step, and greedy output differs from that of
transformers after some tens of tokens.

## Modifications

On the CPU, let the state follow the model's dtype when the variable is not set.

## Accuracy Tests

In the fork's server tests, greedy tokens in float32 are those of transformers.
""",
    edits=(
        AddImport(
            file=FILE,
            module="sglang.srt.environ",
            names=("envs",),
            after="sglang.srt.arg_groups.overrides",
        ),
        AddImport(
            file=FILE,
            module="sglang.srt.arg_groups.overrides",
            names=("model_config_of",),
        ),
        Insert(
            file=FILE,
            scope="handle_mamba_backend",
            after=Find("assign", "cfg"),
            code="""
            if cfg.device == "cpu" and not envs.SGLANG_MAMBA_CONV_DTYPE.is_set():
                dtype = str(model_config_of(server_args).dtype).removeprefix("torch.")
                envs.SGLANG_MAMBA_CONV_DTYPE.set(dtype)
            """,
        ),
    ),
    tests=("unit/arg_groups/test_conv_state_dtype_on_cpu.py",),
)
