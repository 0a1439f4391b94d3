"""What a request for NEXTN becomes."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from head_files import dense_head, write_checkpoint

from sglang.srt.speculative.nextn.algorithm import resolve_nextn_algorithm

LOGGER = "sglang.srt.speculative.nextn.algorithm"


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    (tmp_path / "dense").mkdir()
    return write_checkpoint(tmp_path / "dense", dense_head())


def resolve(folder: Path, **settings: Any) -> str:
    config = json.loads((folder / "config.json").read_text())
    return resolve_nextn_algorithm(arguments(folder, **settings), config)


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


def test_a_checkpoint_with_a_head_keeps_nextn_and_says_nothing(dense, caplog):
    assert resolve(dense) == "NEXTN"
    assert caplog.records == []


def test_a_draft_path_that_is_the_target_itself_keeps_nextn(dense):
    assert resolve(dense, speculative_draft_model_path=str(dense)) == "NEXTN"


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
def test_a_setting_for_another_draft_gives_eagle_in_one_warning(
    dense, caplog, settings: dict[str, Any], reason: str
):
    with caplog.at_level(logging.INFO, LOGGER):
        assert resolve(dense, **settings) == "EAGLE"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    message = record.getMessage()
    assert "NEXTN was asked for, EAGLE is used" in message and reason in message
    assert "\n" not in message


def test_an_architecture_that_only_eagle_serves_gives_eagle_and_names_it(
    dense, tmp_path, caplog
):
    folder = rename_architecture(dense, tmp_path / "next", "Qwen3NextForCausalLM")
    assert resolve(folder) == "EAGLE"
    (record,) = caplog.records
    assert "Qwen3NextForCausalLM" in record.getMessage()


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
