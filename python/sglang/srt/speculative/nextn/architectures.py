"""Target architectures that ship an MTP head, and who drives it.

Every architecture whose head SGLang loads from the target's own checkpoint has a row.
The native worker serves those that a test with a tiny checkpoint proves; for the others
NEXTN is served as EAGLE with a draft model built from the same files.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sglang.srt.speculative.nextn.head_config import (
    get_architecture,
    get_field,
    get_text_config,
)

_MTP = r"mtp\."
# Wrappers put prefixes of their own before these; a head must not be overlooked.
_MTP_IN_MODEL = r"(?:.*\.)?mtp\."
_MTP_LAYERS = r"(?:.*\.)?mtp_layers\."
_APPENDED_LAYER = r"(?:.*\.)?layers\.{num_hidden_layers}\."

_NOT_PROVEN = "its head has the shape of Qwen3.5's, but no test proves it natively yet"
_OTHER_NORMS = "its head joins embedding and hidden state with modules of its own"
_OTHER_ATTENTION = "its head is a decoder layer with its own kind of attention"
_OTHER_LAYERS = "its head mixes layer types that the native head does not build"


@dataclass(frozen=True)
class Architecture:
    """One target architecture.

    Attributes:
        name: as in `architectures` of config.json.
        draft_architecture: the class that SGLang builds for it under EAGLE.
        head_pattern: regular expression for the start of the head's tensor names;
            `{num_hidden_layers}` stands for the target's layer count.
        native: whether the native NEXTN worker serves it.
        reason: why not, in words that complete a sentence; "" when native.
    """

    name: str
    draft_architecture: str
    head_pattern: str
    native: bool = False
    reason: str = ""

    def head_matcher(self, config: Any) -> Callable[[str], bool]:
        """A test for "this tensor belongs to the head" under `config`."""
        layers = get_field(get_text_config(config), "num_hidden_layers", "")
        pattern = re.compile(
            self.head_pattern.replace("{num_hidden_layers}", str(layers))
        )
        return lambda name: pattern.match(name) is not None


ARCHITECTURES: dict[str, Architecture] = {}


def register_architecture(architecture: Architecture) -> None:
    """Add a target architecture; its name must be new."""
    if architecture.name in ARCHITECTURES:
        raise ValueError(f"{architecture.name} is registered already.")
    ARCHITECTURES[architecture.name] = architecture


def find_architecture(config: Any) -> Architecture | None:
    """The row for the first of the config's `architectures`, if there is one."""
    return ARCHITECTURES.get(get_architecture(config) or "")


def _register(draft: str, pattern: str, reason: str, *names: str) -> None:
    for name in names:
        register_architecture(Architecture(name, draft, pattern, not reason, reason))


_register(
    "Qwen3_5ForCausalLMMTP",
    _MTP,
    "",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForCausalLM",
)
_register(
    "Qwen3_5ForCausalLMMTP",
    _MTP,
    _NOT_PROVEN,
    "InternS2PreviewForConditionalGeneration",
    "InternS2MobiusForConditionalGeneration",
)
_register("Qwen3NextForCausalLMMTP", _MTP, _NOT_PROVEN, "Qwen3NextForCausalLM")
_register("Qwen3MoeForCausalLMMTP", _MTP, _NOT_PROVEN, "Qwen3MoeForCausalLM")
_register(
    "Qwen4ExpForCausalLMMTP",
    _MTP,
    _OTHER_ATTENTION,
    "Qwen4ExpForConditionalGeneration",
)
_register(
    "ExaoneMoEForCausalLMMTP",
    _MTP,
    _NOT_PROVEN,
    "ExaoneMoEForCausalLM",
    "ExaoneMoeForCausalLM",
)
_register(
    "NemotronHForCausalLMMTP",
    _MTP_IN_MODEL,
    _OTHER_LAYERS,
    "NemotronHForCausalLM",
    "NemotronHPuzzleForCausalLM",
    "NemotronH_Omni_Reasoning_V3",
)
_register(
    "DeepseekV3ForCausalLMNextN",
    _APPENDED_LAYER,
    _OTHER_NORMS,
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
)
_register("DeepseekV4ForCausalLMNextN", _MTP, _OTHER_NORMS, "DeepseekV4ForCausalLM")
_register(
    "GlmMoeDsaForCausalLMNextN",
    _APPENDED_LAYER,
    _OTHER_NORMS,
    "GlmMoeDsaForCausalLM",
)
_register(
    "Glm4MoeForCausalLMNextN", _APPENDED_LAYER, _OTHER_NORMS, "Glm4MoeForCausalLM"
)
_register(
    "Glm4MoeLiteForCausalLMNextN",
    _APPENDED_LAYER,
    _OTHER_NORMS,
    "Glm4MoeLiteForCausalLM",
)
_register(
    "Glm5NextForConditionalGenerationNextN",
    _APPENDED_LAYER,
    _OTHER_NORMS,
    "Glm5NextForConditionalGeneration",
)
_register(
    "GlmOcrForConditionalGenerationNextN",
    _APPENDED_LAYER,
    _OTHER_NORMS,
    "GlmOcrForConditionalGeneration",
)
_register(
    "GigaChat35ForCausalLMNextN",
    _APPENDED_LAYER,
    _OTHER_NORMS,
    "GigaChat35ForCausalLM",
)
_register(
    "BailingMoeForCausalLMNextN",
    _APPENDED_LAYER,
    _OTHER_NORMS,
    "BailingMoeForCausalLM",
    "BailingMoeV2ForCausalLM",
    "BailingMoeV2_5ForCausalLM",
    "BailingMoeV3ForCausalLM",
)
_register("HYV3ForCausalLMNextN", _APPENDED_LAYER, _OTHER_NORMS, "HYV3ForCausalLM")
_register("HYV4ForCausalLMNextN", _MTP_LAYERS, _OTHER_NORMS, "HYV4ForCausalLM")
_register(
    "Step3p5MTP",
    _APPENDED_LAYER,
    _OTHER_NORMS,
    "Step3p5ForCausalLM",
    "Step3p7ForConditionalGeneration",
)
_register("MiMoMTP", _MTP_LAYERS, _OTHER_NORMS, "MiMoForCausalLM")
_register(
    "MiMoV2MTP",
    _MTP_IN_MODEL,
    _OTHER_NORMS,
    "MiMoV2ForCausalLM",
    "MiMoV2FlashForCausalLM",
)
_register(
    "LongcatFlashForCausalLMNextN",
    _MTP_IN_MODEL,
    _OTHER_NORMS,
    "LongcatFlashForCausalLM",
)
_register(
    "Dots3NoteForCausalLMNextN", _MTP_IN_MODEL, _OTHER_NORMS, "Dots3NoteForCausalLM"
)
_register(
    "Ernie4_5_MoeForCausalLMMTP",
    r"(?:.*\.)?mtp_",
    _OTHER_NORMS,
    "Ernie4_5_MoeForCausalLM",
)
_register(
    "InklingForConditionalGenerationMTP",
    _MTP_IN_MODEL,
    _OTHER_ATTENTION,
    "InklingForConditionalGeneration",
)
