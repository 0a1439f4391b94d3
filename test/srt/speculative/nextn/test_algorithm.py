"""What a request for NEXTN becomes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from head_files import dense_head, write_checkpoint

from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.arg_groups.remap.reasons import reason_for
from sglang.srt.speculative.nextn.algorithm import RULE, resolve_nextn_algorithm


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    (tmp_path / "dense").mkdir()
    return write_checkpoint(tmp_path / "dense", dense_head())


def resolve(folder: Path, **settings: Any) -> tuple[str, str | None]:
    """The algorithm, and the reason that the remap report gets."""
    config = json.loads((folder / "config.json").read_text())
    server_args = arguments(folder, **settings)
    algorithm = resolve_nextn_algorithm(resolving_view(server_args), config)
    reason = reason_for(server_args, RULE, "speculative_algorithm", algorithm)
    return algorithm, reason.why if reason else None


def arguments(folder: Path, **settings: Any) -> SimpleNamespace:
    """The settings that decide, as resolution leaves them by default."""
    defaults = {
        "model_path": str(folder),
        "revision": None,
        "load_format": "auto",
        "speculative_draft_model_path": None,
        "speculative_draft_load_format": None,
        "_speculative_draft_quantization_explicitly_set": False,
        "weight_cache_mode": "off",
        "startup_weight_load_mode": "serial",
    }
    return SimpleNamespace(**{**defaults, **settings})


def rename_architecture(folder: Path, out: Path, name: str) -> Path:
    out.mkdir()
    for file in folder.iterdir():
        (out / file.name).symlink_to(file)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = [name]
    (out / "config.json").unlink()
    (out / "config.json").write_text(json.dumps(config))
    return out


def test_a_checkpoint_with_a_head_keeps_nextn_and_gives_no_reason(dense):
    assert resolve(dense) == ("NEXTN", None)


def test_a_draft_path_that_is_the_target_itself_keeps_nextn(dense):
    algorithm, _ = resolve(dense, speculative_draft_model_path=str(dense))
    assert algorithm == "NEXTN"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"speculative_draft_model_path": "/elsewhere"}, "/elsewhere"),
        ({"load_format": "sharded_state"}, "sharded_state"),
        ({"speculative_draft_load_format": "dummy"}, "--speculative-draft-load-format"),
        (
            {"_speculative_draft_quantization_explicitly_set": True},
            "--speculative-draft-model-quantization",
        ),
        ({"weight_cache_mode": "client"}, "--weight-cache-mode"),
        ({"startup_weight_load_mode": "overlap"}, "--startup-weight-load-mode"),
    ],
)
def test_a_setting_for_another_draft_gives_eagle_and_is_the_reason(
    dense, settings: dict[str, Any], reason: str
):
    algorithm, why = resolve(dense, **settings)
    assert algorithm == "EAGLE"
    assert reason in why and "\n" not in why and not why.endswith(".")


def test_an_architecture_that_only_eagle_serves_gives_eagle_and_names_it(
    dense, tmp_path
):
    folder = rename_architecture(dense, tmp_path / "next", "Qwen3NextForCausalLM")
    algorithm, why = resolve(folder)
    assert algorithm == "EAGLE" and "Qwen3NextForCausalLM" in why


def test_a_model_without_a_head_is_refused_and_told_the_ways_on(dense, tmp_path):
    folder = rename_architecture(dense, tmp_path / "llama", "LlamaForCausalLM")
    with pytest.raises(ValueError) as error:
        resolve(folder)
    message = str(error.value)
    assert "LlamaForCausalLM" in message and str(folder) in message
    assert "--speculative-draft-model-path" in message
    assert "leave --speculative-algorithm out" in message


@pytest.mark.parametrize("missing", ["mtp.fc.weight", "mtp.norm.weight"])
def test_a_broken_head_is_refused_before_anything_loads(tmp_path, missing: str):
    head = dense_head()
    del head[missing]
    with pytest.raises(ValueError, match="NEXTN") as error:
        resolve(write_checkpoint(tmp_path, head))
    assert missing in str(error.value)
