import pytest
from head_files import (
    DENSE_CONFIG,
    MOE_CONFIG,
    bf16,
    dense_head,
    moe_head,
    trunk,
    with_text,
    write_checkpoint,
    write_shard,
)

from sglang.srt.speculative.nextn.completeness import IncompleteHeadError
from sglang.srt.speculative.nextn.safetensors_header import CheckpointError
from sglang.srt.speculative.nextn.support import nextn_support

DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("head", "config"), [(dense_head(), DENSE_CONFIG), (moe_head(), MOE_CONFIG)]
)
def test_complete_head_is_native(tmp_path, head, config):
    support = nextn_support(str(write_checkpoint(tmp_path, head, config)), config)
    assert support.native
    assert support.has_head
    assert support.error is None
    assert support.plan.problems == ()
    assert support.draft_architecture == "Qwen3_5ForCausalLMMTP"
    assert f"{len(head)} MTP tensors in 1 of 2 shards" in support.reason


def test_incomplete_head_is_an_error_not_an_exception(tmp_path):
    head = dense_head()
    del head["mtp.fc.weight"]
    support = nextn_support(str(write_checkpoint(tmp_path, head)), DENSE_CONFIG)
    assert not support.native
    assert support.has_head
    assert isinstance(support.error, IncompleteHeadError)
    assert "mtp.fc.weight" in support.reason


def test_dropped_head_is_an_error(tmp_path):
    support = nextn_support(str(write_checkpoint(tmp_path, {})), DENSE_CONFIG)
    assert support.has_head is False
    assert isinstance(support.error, IncompleteHeadError)


def test_damaged_shard_is_an_error(tmp_path):
    folder = write_checkpoint(tmp_path, dense_head())
    (folder / "model-2.safetensors").write_bytes(b"short")
    support = nextn_support(str(folder), DENSE_CONFIG)
    assert not support.native
    assert isinstance(support.error, CheckpointError)


def test_weights_that_are_not_here_yet_are_checked_later():
    support = nextn_support("nobody/has-this-model", DENSE_CONFIG)
    assert support.native
    assert support.has_head is None
    assert "not on this machine yet" in support.reason


def test_load_format_without_weights_looks_at_no_file(tmp_path):
    support = nextn_support(str(tmp_path), DENSE_CONFIG, check_weights=False)
    assert support.native
    assert support.error is None


def test_config_without_a_head_is_enough_to_say_no():
    config = with_text(DENSE_CONFIG, mtp_num_hidden_layers=0)
    support = nextn_support("nobody/has-this-model", config)
    assert not support.native
    assert support.has_head is False


def test_other_weight_formats_are_left_to_others(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    support = nextn_support(str(tmp_path), DENSE_CONFIG)
    assert not support.native
    assert support.error is None
    assert "safetensors weights only" in support.reason


def test_single_file_of_another_format_is_left_to_others(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    support = nextn_support(str(tmp_path / "model.gguf"), DENSE_CONFIG)
    assert not support.native
    assert support.error is None


@pytest.mark.parametrize("layer", [2, 1])
def test_known_architecture_that_is_not_native_says_why(tmp_path, layer):
    weights = trunk() | {f"model.layers.{layer}.eh_proj.weight": bf16(4, 8)}
    write_shard(tmp_path / "model.safetensors", weights)
    support = nextn_support(str(tmp_path), DEEPSEEK)
    assert not support.native
    assert support.error is None
    assert support.draft_architecture == "DeepseekV3ForCausalLMNextN"
    assert support.has_head is (layer == 2)
    assert "DeepseekV3ForCausalLM is not served by the native worker" in support.reason


def test_unknown_architecture_has_no_head_that_sglang_knows(tmp_path):
    support = nextn_support(str(tmp_path), {"architectures": ["LlamaForCausalLM"]})
    assert not support.native
    assert support.draft_architecture is None
    assert "LlamaForCausalLM" in support.reason


def test_repository_in_the_local_cache_is_found(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--some--model"
    write_checkpoint(repository / "snapshots" / "abc", dense_head())
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    support = nextn_support("some/model", DENSE_CONFIG)
    assert support.native
    assert support.has_head
