"""A plugin of SGLang that writes down how many rows each forward sends to lm_head."""

import os
from pathlib import Path

FILE_VARIABLE = "LM_HEAD_ROWS_FILE"


def register() -> None:
    """Called by SGLang in each of its processes."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    path = Path(os.environ[FILE_VARIABLE])

    def note(processor, hidden_states, lm_head, logits_metadata, *args, **kwargs):
        mode = logits_metadata.forward_mode.name
        with path.open("a") as file:
            print(mode, len(hidden_states), len(lm_head.weight), file=file)

    target = "sglang.srt.layers.logits_processor.LogitsProcessor._get_logits"
    HookRegistry.register(target, note, HookType.BEFORE)
