"""NVFP4 checkpoints that we write are what compressed-tensors would write."""

import json

import pytest
import torch
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationScheme
from tiny_qwen.checkpoint import Checkpoint
from tiny_qwen.nvfp4 import COMPRESSED_TENSORS, MODELOPT, Recipe, quantize, write

LAYER = "model.language_model.layers.3"


@pytest.fixture(scope="module")
def source(trained):
    return Checkpoint.read(trained)


@pytest.fixture(scope="module")
def quantised(source):
    recipe = Recipe(COMPRESSED_TENSORS, parts=("mlp", "attention", "lm_head"))
    return quantize(source, recipe)


def values_of(packed, block_scale, global_scale):
    rows, half = packed.shape
    codes = unpack_fp4_from_uint8(packed, rows, 2 * half, torch.float64)
    return codes * block_scale.double().repeat_interleave(16, 1) / global_scale


def test_compressed_tensors_rounds_and_packs_alike(source, quantised):
    group = quantised.config["quantization_config"]["config_groups"]["group_0"]
    scheme = QuantizationScheme(**group)
    names = [n for n in quantised.tensors if n.endswith(".weight_packed")]
    assert len(names) == 4 * 3 + 4 + 1
    for name in names:
        module, packed = name.removesuffix(".weight_packed"), quantised.tensors[name]
        scales = [
            quantised.tensors[f"{module}.{key}"].float()
            for key in ("weight_scale", "weight_global_scale")
        ]
        weight = source.tensors[f"{module}.weight"].float()
        keys = ("weight", "weight_scale", "weight_global_scale")
        judged = NVFP4PackedCompressor.compress(
            dict(zip(keys, (weight, *scales), strict=True)), scheme
        )["weight_packed"]
        ours, theirs = (values_of(codes, *scales) for codes in (packed, judged))
        # They round in float32: a value half way between two codes may fall either way.
        assert (packed != judged).float().mean() < 0.01
        nearer = (ours - weight).abs() - (theirs - weight).abs()
        assert nearer.abs().max() < 1e-6 * weight.abs().max()
        assert (ours - weight).norm() < 0.12 * weight.norm()


def test_both_layouts_hold_the_same_codes(source, quantised):
    modelopt = quantize(source, Recipe(MODELOPT, parts=("mlp", "attention", "lm_head")))
    for name, tensor in quantised.tensors.items():
        if name.endswith(".weight_packed"):
            module = name.removesuffix(".weight_packed")
            assert torch.equal(modelopt.tensors[f"{module}.weight"], tensor)
            one = modelopt.tensors[f"{module}.weight_scale_2"]
            other = quantised.tensors[f"{module}.weight_global_scale"]
            torch.testing.assert_close(one * other, torch.ones(1))


def test_fused_projections_share_their_scales(quantised):
    names = [f"{LAYER}.self_attn.{part}_proj.weight_global_scale" for part in "qkv"]
    assert len({float(quantised.tensors[name]) for name in names}) == 1


def test_the_head_and_everything_unquantised_is_listed(source):
    config = quantize(source, Recipe()).config["quantization_config"]
    assert {"lm_head", "mtp*", "model.visual*"} <= set(config["ignore"])
    assert f"{LAYER}.self_attn.q_proj" in config["ignore"]
    assert not any("mlp" in name for name in config["ignore"])


def test_experts_are_quantised_one_by_one_and_the_source_is_kept(variant):
    source = Checkpoint.read(variant("moe"))
    names = set(source.tensors)
    tensors = quantize(source, Recipe()).tensors
    assert set(source.tensors) == names
    assert tensors[f"{LAYER}.mlp.experts.7.down_proj.weight"].dtype == torch.uint8
    assert tensors["mtp.layers.0.mlp.experts.7.down_proj.weight"].is_floating_point()
    assert tensors[f"{LAYER}.mlp.gate.weight"].is_floating_point()


def test_modelopt_has_its_legacy_file(source, tmp_path):
    write(quantize(source, Recipe(weight_only=True)), tmp_path)
    legacy = json.loads((tmp_path / "hf_quant_config.json").read_text("utf-8"))
    assert legacy["quantization"]["quant_algo"] == "W4A16_NVFP4"
    assert not any("input_scale" in n for n in Checkpoint.read(tmp_path).tensors)
