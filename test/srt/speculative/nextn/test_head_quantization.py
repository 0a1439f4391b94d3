import pytest
from head_files import (
    DENSE_CONFIG,
    MOE_CONFIG,
    dense_head,
    moe_head,
    nvfp4,
    nvfp4_packed,
    quantize,
    write_checkpoint,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang.srt.speculative.nextn.head_plan import plan_head
from sglang.srt.speculative.nextn.safetensors_header import HeadTensor
from sglang.srt.speculative.nextn.schemes import (
    SCHEMES,
    allowed_shapes,
    detect_scheme,
)
from sglang.srt.speculative.nextn.stored_shapes import QuantizationSizes

LAYER = "mtp.layers.0"
EXPERTS = [
    f"{LAYER}.mlp.experts.{expert}.{name}_proj"
    for expert in range(4)
    for name in ("gate", "up")
]
MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
COMPRESSED = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}


def plan_of(folder, head, quantization=None, config=DENSE_CONFIG):
    if quantization is not None:
        config = {**config, "quantization_config": quantization}
    return plan_head(write_checkpoint(folder, head, config), config)


def nvfp4_experts(head, form=nvfp4):
    head = quantize(head, EXPERTS, form(64, 128))
    down = [f"{LAYER}.mlp.experts.{expert}.down_proj" for expert in range(4)]
    return quantize(head, down, form(128, 64))


@settings(deadline=None)
@given(
    st.sampled_from(sorted(SCHEMES)),
    st.integers(1, 8),
    st.integers(1, 8),
    st.data(),
)
def test_every_scheme_is_recognised_by_its_tensors_alone(name, rows, columns, data):
    scheme, shape, sizes = (
        SCHEMES[name],
        (256 * rows, 256 * columns),
        QuantizationSizes(),
    )
    found = {}
    for suffix, stored in scheme.required.items():
        options = allowed_shapes(stored, shape, sizes)
        if name == "fp8":  # one with a scale for each block is FP8 (block) as well
            options = options[:4]
        found[suffix] = HeadTensor(
            suffix,
            "shard",
            data.draw(st.sampled_from(stored.dtypes)),
            data.draw(st.sampled_from(options)),
        )
    assert detect_scheme(found, shape, sizes) is scheme


def test_modelopt_and_compressed_tensors_shapes_are_those_of_published_weights():
    sizes = QuantizationSizes()
    for name, form in (("nvfp4", nvfp4), ("nvfp4-pack-quantized", nvfp4_packed)):
        for suffix, (dtype, shape) in form(384, 256).items():
            stored = SCHEMES[name].tensors[suffix]
            assert dtype in stored.dtypes
            assert shape in allowed_shapes(stored, (384, 256), sizes)


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        (
            "fp8-block",
            {"weight": ("F8_E4M3", (384, 256)), "weight_scale_inv": ("F32", (3, 2))},
        ),
        ("fp8", {"weight": ("F8_E4M3", (384, 256)), "weight_scale": ("F32", ())}),
        (
            "fp8",
            {"weight": ("F8_E4M3", (384, 256)), "weight_scale": ("BF16", (384, 1))},
        ),
        (
            "gptq",
            {
                "qweight": ("I32", (32, 384)),
                "qzeros": ("I32", (2, 48)),
                "scales": ("F16", (2, 384)),
                "g_idx": ("I32", (256,)),
            },
        ),
        (
            "awq",
            {
                "qweight": ("I32", (256, 48)),
                "qzeros": ("I32", (2, 48)),
                "scales": ("F16", (2, 384)),
            },
        ),
        (
            "pack-quantized",
            {
                "weight_packed": ("I32", (384, 32)),
                "weight_scale": ("BF16", (384, 2)),
                "weight_shape": ("I64", (2,)),
            },
        ),
        (
            "mxfp4",
            {"weight": ("U8", (384, 128)), "weight_scale": ("U8", (384, 8))},
        ),
    ],
)
def test_published_formats_are_recognised(name, tensors):
    found = {
        suffix: HeadTensor(suffix, "shard", dtype, shape)
        for suffix, (dtype, shape) in tensors.items()
    }
    scheme = detect_scheme(found, (384, 256), QuantizationSizes())
    assert scheme.name == name
    assert found.keys() <= scheme.tensors.keys()


def test_bf16_head_of_a_quantized_target(tmp_path):
    plan = plan_of(tmp_path, dense_head(), {**MODELOPT, "ignore": ["mtp*"]})
    assert not plan.quantization.any_quantized
    assert plan.quantization.disagreements == ()
    assert str(plan.quantization) == "BF16"


@pytest.mark.parametrize(
    ("form", "config"), [(nvfp4, MODELOPT), (nvfp4_packed, COMPRESSED)]
)
def test_quantized_experts_beside_bf16_rest(tmp_path, form, config):
    ignore = ["lm_head", "re:.*self_attn.*", "mtp.fc", "re:.*shared_expert.*"]
    if config is MODELOPT:
        ignore = ["*self_attn*", "mtp.fc", "*shared_expert*"]
    plan = plan_of(
        tmp_path,
        nvfp4_experts(moe_head(), form),
        {**config, "ignore": ignore},
        MOE_CONFIG,
    )
    decided = plan.quantization
    assert decided.is_quantized(f"{LAYER}.mlp.experts")
    assert not decided.is_quantized(f"{LAYER}.self_attn.qkv_proj")
    assert not decided.is_quantized(f"{LAYER}.mlp.shared_expert.gate_up_proj")
    assert not decided.is_quantized("mtp.fc")
    assert decided.disagreements == ()


def test_fp8_blocks_in_packed_experts(tmp_path):
    head = moe_head(packed=True)
    for name, shape, scales in (
        ("gate_up_proj", (4, 128, 128), (4, 1, 1)),
        ("down_proj", (4, 128, 64), (4, 1, 1)),
    ):
        head[f"{LAYER}.mlp.experts.{name}"] = ("F8_E4M3", shape)
        head[f"{LAYER}.mlp.experts.{name}_scale_inv"] = ("F32", scales)
    plan = plan_of(tmp_path, head, {"quant_method": "fp8"}, MOE_CONFIG)
    assert plan.quantization.schemes[f"{LAYER}.mlp.experts"].name == "fp8-block"


def test_split_names_in_the_list_cover_fused_modules(tmp_path):
    """Field report 6: the list names q, k, v, gate and up, the engine builds two."""
    names = [f"{LAYER}.self_attn.{part}_proj" for part in "qkvo"]
    names += [f"{LAYER}.mlp.{part}_proj" for part in ("gate", "up", "down")]
    plan = plan_of(tmp_path, dense_head(), {**COMPRESSED, "ignore": [*names, "mtp.fc"]})
    assert plan.quantization.disagreements == ()


def test_fc_is_not_quantized_although_the_list_forgets_it(tmp_path):
    """Field report 7: `mtp.layers.0*` says nothing about `mtp.fc`."""
    ignore = ["model.visual*", "mtp.layers.0*"]
    plan = plan_of(tmp_path, dense_head(), {**MODELOPT, "ignore": ignore})
    assert not plan.quantization.is_quantized("mtp.fc")
    (disagreement,) = plan.quantization.disagreements
    assert (disagreement.module, disagreement.listed) == ("mtp.fc", True)
    assert "mtp.fc" in str(disagreement)
    assert "BF16" in str(disagreement)


def test_quantized_weights_win_over_a_list_that_excludes_them(tmp_path):
    head = quantize(dense_head(), [f"{LAYER}.self_attn.o_proj"], nvfp4(128, 128))
    plan = plan_of(tmp_path, head, {**MODELOPT, "ignore": ["mtp*"]})
    assert plan.quantization.is_quantized(f"{LAYER}.self_attn.o_proj")
    (disagreement,) = plan.quantization.disagreements
    assert disagreement.listed is False


def test_quantized_fc_is_taken_from_the_file(tmp_path):
    head = quantize(dense_head(), ["mtp.fc"], nvfp4(128, 256))
    plan = plan_of(tmp_path, head, {**MODELOPT, "ignore": ["mtp.layers*"]})
    assert plan.quantization.is_quantized("mtp.fc")
    assert plan.quantization.disagreements == ()


def test_quantized_head_without_any_config_is_reported(tmp_path):
    head = quantize(dense_head(), ["mtp.fc"], nvfp4(128, 256))
    (disagreement,) = plan_of(tmp_path, head).quantization.disagreements
    assert disagreement.module == "mtp.fc"


def test_list_that_splits_a_fused_module_is_reported(tmp_path):
    ignore = ["re:.*self_attn\\.[qko]_proj", "re:.*mlp.*", "mtp.fc"]
    plan = plan_of(tmp_path, dense_head(), {**COMPRESSED, "ignore": ignore})
    (disagreement,) = plan.quantization.disagreements
    assert disagreement.module == f"{LAYER}.self_attn.qkv_proj"
    assert disagreement.listed is None


def test_group_size_of_the_config_is_expected_of_the_scales(tmp_path):
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    head = quantize(
        dense_head(),
        ["mtp.fc"],
        {
            "qweight": ("I32", (32, 128)),
            "qzeros": ("I32", (8, 16)),
            "scales": ("F16", (8, 128)),
            "g_idx": ("I32", (256,)),
        },
    )
    assert plan_of(tmp_path / "right", head, gptq).problems == ()
    with pytest.raises(ValueError, match=r"mtp\.fc\.scales"):
        plan_of(tmp_path / "wrong", head, {**gptq, "group_size": 128})


def test_label_of_a_float16_head(tmp_path):
    head = {name: ("F16", shape) for name, (_, shape) in dense_head().items()}
    assert str(plan_of(tmp_path, head).quantization) == "F16"
