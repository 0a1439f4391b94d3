import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang.srt.speculative.nextn.quantization_config import (
    read_quantization_config,
)

QKV = "mtp.layers.0.self_attn.qkv_proj"
DOWN = "mtp.layers.0.mlp.down_proj"
EXPERTS = "mtp.layers.0.mlp.experts"
SPLIT = [f"mtp.layers.0.self_attn.{part}_proj" for part in "qkv"]


def config_of(method, **values):
    raw = {"quant_method": method, **values}
    return read_quantization_config({"quantization_config": raw})


@pytest.mark.parametrize(
    ("method", "ignore", "module", "quantized"),
    [
        ("modelopt_fp4", [], "mtp.fc", True),
        ("modelopt_fp4", ["mtp*"], "mtp.fc", False),
        ("modelopt_fp4", ["mtp"], QKV, False),
        ("modelopt_fp4", ["mtp.layers.0*"], "mtp.fc", True),
        ("modelopt_fp4", ["mtp.layers.0*"], QKV, False),
        ("modelopt_fp4", ["mtp.layers.0.self_attn*"], DOWN, True),
        ("modelopt_fp4", ["model.mtp.layers.0*"], QKV, False),
        ("modelopt_fp4", ["language_model.mtp*"], QKV, False),
        ("modelopt_fp4", ["model.language_model.mtp.fc"], "mtp.fc", False),
        ("modelopt_fp4", ["*self_attn*"], QKV, False),
        ("modelopt_fp4", ["self_attn"], QKV, False),
        ("modelopt_fp4", ["q_proj"], QKV, None),
        ("modelopt_fp4", ["model.layers.0*"], QKV, True),
        ("modelopt_fp4", SPLIT, QKV, False),
        ("modelopt_fp4", SPLIT[:2], QKV, None),
        ("modelopt_fp4", [QKV], QKV, True),
        ("modelopt_fp4", ["mtp.layers.0.mlp.experts*"], EXPERTS, False),
        ("compressed-tensors", SPLIT, QKV, False),
        ("compressed-tensors", ["re:.*mtp.*"], QKV, False),
        ("compressed-tensors", ["re:^mtp\\.fc$"], "mtp.fc", False),
        ("compressed-tensors", ["re:mtp\\.fc"], QKV, True),
        ("compressed-tensors", ["re:model\\.mtp\\..*"], DOWN, False),
        ("compressed-tensors", ["re:("], DOWN, True),
        ("compressed-tensors", ["mlp.down_proj"], DOWN, False),
        ("compressed-tensors", ["mtp.layers.0.mlp"], DOWN, True),
        ("compressed-tensors", ["mtp.layers.0.mlp.experts.0"], EXPERTS, True),
        ("fp8", ["mtp.layers.0.mlp"], DOWN, False),
        ("fp8", ["mlp.gate"], "mtp.layers.0.mlp.gate_up_proj", True),
        ("fp8", ["mtp.layers.0.mlp.experts"], EXPERTS, False),
        ("awq", ["mtp"], "mtp.fc", False),
        ("awq", ["visual"], "mtp.fc", True),
    ],
)
def test_spellings(method, ignore, module, quantized):
    assert config_of(method, ignore=ignore).says_quantized(module) is quantized


@pytest.mark.parametrize(
    "key", ["ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"]
)
def test_names_of_the_list(key):
    config = config_of("fp8", **{key: ["mtp"]})
    assert config.excluded == ("mtp",)
    assert config.list_key == key


def test_gptq_rules_exclude_by_regular_expression():
    config = config_of("gptq", dynamic={"-:.*mtp.*": {}, "+:.*q_proj": {"bits": 8}})
    assert config.says_quantized(QKV) is False
    assert config.says_quantized("model.layers.0.mlp.down_proj") is True


def test_auto_round_keeps_modules_at_16_bits():
    extra = {"mtp.fc": {"bits": 16}, "mtp.layers.0": {"bits": 8}}
    config = config_of("auto-round", extra_config=extra)
    assert config.says_quantized("mtp.fc") is False
    assert config.says_quantized(DOWN) is True


def test_mixed_precision_lists_what_is_quantized():
    layers = {"mtp.layers.0.mlp.experts": {"quant_algo": "NVFP4"}, f"{DOWN}": {}}
    config = config_of(
        "modelopt", quant_algo="MIXED_PRECISION", quantized_layers=layers
    )
    assert config.method == "modelopt_mixed"
    assert config.says_quantized(EXPERTS) is True
    assert config.says_quantized(DOWN) is True
    assert config.says_quantized(QKV) is False


@pytest.mark.parametrize(
    ("targets", "quantized"), [(["Linear"], True), (["re:.*self_attn.*"], False)]
)
def test_targets_that_name_modules_leave_others_alone(targets, quantized):
    group = {"targets": targets, "weights": {"num_bits": 4, "group_size": 16}}
    config = config_of("compressed-tensors", config_groups={"group_0": group})
    assert config.says_quantized(DOWN) is quantized
    assert config.says_quantized(QKV) is True


def test_sizes_come_from_the_config():
    config = config_of("fp8", weight_block_size=[64, 32])
    assert config.sizes.block_size == (64, 32)
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "strategy": "channel"}}
    config = config_of("compressed-tensors", config_groups={"group_0": group})
    assert config.sizes.bits == (8,)
    assert config.sizes.group_sizes == (-1,)


@pytest.mark.parametrize(
    ("algorithm", "method"),
    [
        ("NVFP4", "modelopt_fp4"),
        ("FP8", "modelopt_fp8"),
        ("W4A16_NVFP4", "modelopt_fp4"),
    ],
)
def test_legacy_file_beside_the_config(tmp_path, algorithm, method):
    legacy = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": algorithm, "exclude_modules": ["mtp*"]},
    }
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(legacy))
    config = read_quantization_config({}, tmp_path)
    assert config.method == method
    assert config.says_quantized("mtp.fc") is False


def test_config_in_the_text_part_is_found():
    raw = {"quant_method": "fp8"}
    config = read_quantization_config({"text_config": {"quantization_config": raw}})
    assert config.method == "fp8"


def test_unquantized_checkpoint_has_none(tmp_path):
    assert read_quantization_config({}, tmp_path) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = [
    "quant_method",
    "quant_algo",
    "quantization",
    "producer",
    "ignore",
    "exclude_modules",
    "dynamic",
    "extra_config",
    "config_groups",
    "quantized_layers",
    "weight_block_size",
    "group_size",
    "bits",
]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), JSON), JSON)
def test_malformed_config_never_raises(raw, group):
    raw.setdefault("config_groups", {"group_0": group, "group_1": {"weights": group}})
    config = read_quantization_config({"quantization_config": raw})
    assert config.says_quantized(QKV) in (True, False, None)
