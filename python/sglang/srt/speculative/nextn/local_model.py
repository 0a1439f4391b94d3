"""Where a model that the user named lies on this machine."""

from __future__ import annotations

import re
from pathlib import Path

from sglang.srt.speculative.nextn.weight_index import INDEX_NAME

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def find_local_model(model: str, revision: str | None = None) -> Path | None:
    """A folder or index file for `model`, or None when its weights are not here.

    A path is taken as it is. A Hugging Face repository is looked up in the local cache,
    never on the network: the index if it is there, the folder for a single file.
    """
    path = Path(model).expanduser()
    if path.exists():
        return path
    if not _REPOSITORY.fullmatch(model):
        return None
    from huggingface_hub import try_to_load_from_cache

    for name in (INDEX_NAME, "model.safetensors"):
        cached = try_to_load_from_cache(model, name, revision=revision)
        if isinstance(cached, str):
            return Path(cached) if name == INDEX_NAME else Path(cached).parent
    return None
