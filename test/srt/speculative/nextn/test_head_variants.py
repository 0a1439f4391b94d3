"""Every odd or broken checkpoint of the registry gets the right answer from headers."""

import json

import pytest
import torch
from head_files import DENSE_CONFIG, dense_head, trunk
from safetensors.torch import save_file
from tiny_qwen.variants import VARIANTS

from sglang.srt.speculative.nextn.report import Verdict, inspect_model


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dense")
    tensors = {
        name: torch.ones(shape, dtype=torch.bfloat16)
        for name, (_, shape) in (trunk() | dense_head()).items()
    }
    save_file(tensors, folder / "model.safetensors")
    config = {**DENSE_CONFIG, "vision_config": {"model_type": "qwen3_5"}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_variant(source, tmp_path, name):
    variant = VARIANTS[name]
    variant.build(source, tmp_path / name)
    report = inspect_model(str(tmp_path / name))
    if variant.valid:
        assert report.verdict is Verdict.YES, report.reason
    else:
        assert report.verdict is Verdict.BROKEN
        assert all(word in report.reason for word in variant.error_names)
