import ast
import importlib.util
import re
from pathlib import Path

import pytest

from sglang.srt.speculative.nextn.architectures import (
    ARCHITECTURES,
    find_architecture,
    register_architecture,
)

SGLANG = Path(importlib.util.find_spec("sglang").submodule_search_locations[0])

# Compared in the same function and no target of NEXTN: another algorithm's draft.
OTHER_ALGORITHMS = {"DSparkMiniMaxDraftModel", "DeepseekV4ForCausalLMDSpark"}


def draft_renames():
    """Architecture names in the upstream function that turns a target into a draft."""
    tree = ast.parse((SGLANG / "srt/configs/model_config.py").read_text())
    (function,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "_config_draft_model"
    )
    constants = {
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {
        name
        for name in constants
        if re.fullmatch(r"[A-Z]\w*(For[A-Z]\w+|MTP|_V3|DraftModel)", name)
    } - OTHER_ALGORITHMS


def test_every_architecture_that_upstream_drafts_for_is_registered():
    drafts = {row.draft_architecture for row in ARCHITECTURES.values()}
    renames = draft_renames()
    assert len(renames) > 40
    assert renames <= ARCHITECTURES.keys() | drafts


def test_every_draft_class_exists_upstream():
    sources = "\n".join(
        path.read_text() for path in (SGLANG / "srt/models").rglob("*.py")
    )
    for row in ARCHITECTURES.values():
        assert f"class {row.draft_architecture}(" in sources, row


def test_an_architecture_is_native_or_says_why_not():
    assert all(row.native == (row.reason == "") for row in ARCHITECTURES.values())


def test_qwen3_5_is_native():
    native = {name for name, row in ARCHITECTURES.items() if row.native}
    assert {
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    } <= native


@pytest.mark.parametrize(
    ("architecture", "inside", "outside"),
    [
        ("Qwen3_5ForCausalLM", "mtp.fc.weight", "model.layers.4.mlp.up_proj.weight"),
        ("DeepseekV3ForCausalLM", "model.layers.61.eh_proj.weight", "model.layers.6.x"),
        ("DeepseekV3ForCausalLM", "model.layers.61.enorm.weight", "model.layers.610.x"),
        (
            "MiMoForCausalLM",
            "model.mtp_layers.0.input_proj.weight",
            "model.norm.weight",
        ),
        ("LongcatFlashForCausalLM", "model.mtp.layers.0.enorm.m.weight", "model.mtpx"),
        ("NemotronHForCausalLM", "mtp.layers.0.x", "backbone.layers.0.x"),
    ],
)
def test_head_tensors_are_told_from_the_targets(architecture, inside, outside):
    config = {"architectures": [architecture], "num_hidden_layers": 61}
    is_head_tensor = find_architecture(config).head_matcher(config)
    assert is_head_tensor(inside)
    assert not is_head_tensor(outside)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="registered already"):
        register_architecture(ARCHITECTURES["Qwen3_5ForCausalLM"])


def test_unknown_architecture_has_no_row():
    assert find_architecture({"architectures": ["LlamaForCausalLM"]}) is None
    assert find_architecture({}) is None
