"""The head's model configuration, derived from the target's in memory."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import TYPE_CHECKING

from sglang.srt.utils.hf_transformers_utils import get_hf_text_config

if TYPE_CHECKING:
    from sglang.srt.configs.model_config import ModelConfig


def head_model_config(target: ModelConfig) -> ModelConfig:
    """Return the draft form of the target's model configuration.

    The files of the checkpoint are not read again: the target's resolved configuration
    is copied, renamed to its draft architecture, and what depends on the name is
    derived anew.
    """
    config = copy.copy(target)
    for name in list(vars(config)):
        if isinstance(getattr(type(config), name, None), cached_property):
            del config.__dict__[name]
    config.hf_config = copy.deepcopy(target.hf_config)
    config.hf_text_config = get_hf_text_config(config.hf_config)
    config.is_draft_model = True
    config._config_draft_model()
    config._derive_model_shapes()
    config._derive_hybrid_model()
    return config
