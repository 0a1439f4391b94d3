import pytest
from head_files import (
    DENSE_CONFIG,
    LARGE_CONFIG,
    MOE_CONFIG,
    dense_head,
    large_head,
    moe_head,
    with_text,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang.srt.speculative.nextn.head_config import (
    DenseMLP,
    SparseMLP,
    read_head_config,
)
from sglang.srt.speculative.nextn.layout import head_layout
from sglang.srt.speculative.nextn.safetensors_header import CheckpointError


def stored(config, num_layers=1, form=0):
    """Names and shapes of the layout; `form` picks among forms where there are two."""
    return {
        module.tensor_name("weight"): module.shape
        for choice in head_layout(read_head_config(config), num_layers)
        for module in choice.forms[min(form, len(choice.forms) - 1)]
    }


def shapes(tensors):
    return {name: shape for name, (_, shape) in tensors.items()}


def test_dense_head():
    assert stored(DENSE_CONFIG) == shapes(dense_head())


def test_head_of_two_layers():
    assert stored(DENSE_CONFIG, num_layers=2) == shapes(dense_head(2))


def test_moe_head_expert_by_expert():
    assert stored(MOE_CONFIG) == shapes(moe_head())


def test_moe_head_with_packed_experts():
    packed = stored(MOE_CONFIG, form=1)
    experts = {n: s for n, s in packed.items() if ".experts." in n}
    expected = shapes(moe_head(packed=True))
    assert experts == {n: s for n, s in expected.items() if ".experts." in n}


def test_fused_projections():
    fused = stored(DENSE_CONFIG, form=1)
    assert fused["mtp.layers.0.self_attn.qkv_proj.weight"] == (256 + 64 + 64, 128)
    assert fused["mtp.layers.0.mlp.gate_up_proj.weight"] == (512, 128)


def test_head_of_the_397b_model_has_1553_tensors():
    assert stored(LARGE_CONFIG) == shapes(large_head())
    assert len(large_head()) == 1553


def test_without_output_gate_the_query_is_half_as_wide():
    config = with_text(DENSE_CONFIG, attn_output_gate=False)
    assert stored(config)["mtp.layers.0.self_attn.q_proj.weight"] == (128, 128)


def test_without_shared_expert_nothing_of_it_is_expected():
    config = with_text(MOE_CONFIG, shared_expert_intermediate_size=0)
    assert not [name for name in stored(config) if "shared_expert" in name]


def test_dedicated_embedding_is_expected_where_configured():
    config = with_text(DENSE_CONFIG, mtp_use_dedicated_embeddings=True)
    assert stored(config)["mtp.embed_tokens.weight"] == (512, 128)


def test_dense_config_with_inherited_expert_counts_stays_dense():
    config = read_head_config(with_text(DENSE_CONFIG, num_experts=512))
    assert config.mlp == DenseMLP(256)


def test_flat_text_config_is_read_like_a_nested_one():
    flat = {
        **MOE_CONFIG["text_config"],
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "tie_word_embeddings": True,
    }
    config = read_head_config(flat)
    assert config.mlp == SparseMLP(4, 2, 64, 96)
    assert config.tie_word_embeddings


@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "vocab_size"])
def test_missing_size_is_an_error_that_names_the_key(key):
    with pytest.raises(CheckpointError, match=key):
        read_head_config(with_text(DENSE_CONFIG, **{key: None}))


@pytest.mark.parametrize("value", ["1", 1.5, -1, True])
def test_number_of_layers_must_be_a_whole_number(value):
    with pytest.raises(CheckpointError, match="mtp_num_hidden_layers"):
        read_head_config(with_text(DENSE_CONFIG, mtp_num_hidden_layers=value))


def test_transformers_config_reads_like_its_json():
    from sglang.srt.configs.qwen3_5 import Qwen3_5MoeConfig

    loaded = Qwen3_5MoeConfig(**MOE_CONFIG)
    assert read_head_config(loaded) == read_head_config(MOE_CONFIG)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(MOE_CONFIG["text_config"])),
    st.none() | st.integers(-2, 2) | st.text(max_size=3) | st.lists(st.integers()),
)
def test_malformed_config_is_an_error_that_names_a_key(key, value):
    try:
        read_head_config(with_text(MOE_CONFIG, **{key: value}))
    except CheckpointError as error:
        assert f'"{key}"' in str(error) or key == "model_type"
