"""Patches 800 to 820: which NVFP4 backend a platform gets."""

import json
from types import SimpleNamespace

import pytest

from sglang.srt.arg_groups import overrides
from sglang.srt.arg_groups.choices import FP4_GEMM_RUNNER_BACKEND_CHOICES
from sglang.srt.arg_groups.modelopt_mixed_moe import moe_runner_backend_without_sm100
from sglang.srt.layers.quantization import fp4_utils
from sglang.srt.layers.quantization.fp4_utils import Fp4GemmRunnerBackend

EXPERT = "model.language_model.layers.0.mlp.experts.0.up_proj"


@pytest.fixture
def initialized(monkeypatch):
    def initialize(backend, **platform):
        kernel = SimpleNamespace(fp4_gemm_runner_backend=backend)
        facts = {"is_sm100": False, "is_sm120": False, "device_capability": (9, 0)}
        monkeypatch.setattr(
            fp4_utils, "get_exec", lambda: SimpleNamespace(kernel=kernel)
        )
        monkeypatch.setattr(
            fp4_utils, "get_platform", lambda: SimpleNamespace(**facts | platform)
        )
        monkeypatch.setattr(fp4_utils, "FP4_GEMM_RUNNER_BACKEND", None)
        fp4_utils.initialize_fp4_gemm_config()
        return fp4_utils.get_fp4_gemm_runner_backend()

    return initialize


def test_every_choice_but_auto_is_a_backend():
    for choice in FP4_GEMM_RUNNER_BACKEND_CHOICES:
        assert Fp4GemmRunnerBackend(choice).value == choice


def test_the_cpu_takes_triton_by_itself(initialized):
    assert initialized("auto").is_triton()


def test_auto_elsewhere_is_what_it_was(initialized, monkeypatch):
    monkeypatch.setattr(fp4_utils, "is_cpu", lambda: False)
    assert initialized("auto", is_sm100=True).is_flashinfer_cutedsl()
    assert initialized("auto", is_sm120=True).is_flashinfer_cutlass()
    monkeypatch.setattr(fp4_utils, "is_cuda", lambda: True)
    monkeypatch.setattr(fp4_utils, "get_device_capability", lambda: (9, 0))
    assert initialized("auto").is_marlin()


def test_b12x_has_flashinfers_name(initialized):
    from flashinfer import mm_fp4

    backend = initialized("flashinfer_b12x", is_sm120=True)
    assert mm_fp4.has_backend(backend.get_flashinfer_backend())


def test_b12x_needs_sm12x(initialized):
    with pytest.raises(ValueError, match="requires SM12x"):
        initialized("flashinfer_b12x")


def test_b12x_needs_a_flashinfer_that_has_it(initialized, monkeypatch):
    import flashinfer

    monkeypatch.delattr(flashinfer.mm_fp4, "has_backend")
    with pytest.raises(ValueError, match=r"mm_fp4 has the backend b12x, found"):
        initialized("flashinfer_b12x", is_sm120=True)


def mixed(tmp_path, *algorithms, in_config=True):
    layers = {f"{EXPERT}{i}": {"quant_algo": a} for i, a in enumerate(algorithms)}
    layers["model.layers.0.self_attn.q_proj"] = {"quant_algo": "FP8"}
    config = {"quantized_layers": layers} if in_config else {}
    if not in_config:
        content = {"quantization": {"quantized_layers": layers}}
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(content))
    return SimpleNamespace(
        quantization="modelopt_mixed",
        model_path=str(tmp_path),
        hf_config=SimpleNamespace(quantization_config=config),
    )


@pytest.mark.parametrize("in_config", [True, False])
@pytest.mark.parametrize(
    ("algorithms", "backend"),
    [
        (["NVFP4", "NVFP4"], "flashinfer_cutlass"),
        (["W4A16_NVFP4"], "marlin"),
        (["FP8"], "auto"),
        ([], "auto"),
    ],
)
def test_experts_of_a_mixed_checkpoint_decide(tmp_path, in_config, algorithms, backend):
    model = mixed(tmp_path, *algorithms, in_config=in_config)
    assert moe_runner_backend_without_sm100(model, None) == backend


def test_experts_of_two_kinds_are_an_error(tmp_path):
    model = mixed(tmp_path, "NVFP4", "W4A16_NVFP4")
    with pytest.raises(ValueError, match="NVFP4 and W4A16_NVFP4"):
        moe_runner_backend_without_sm100(model, None)


@pytest.mark.parametrize("asked", ["modelopt_mixed", None])
@pytest.mark.parametrize(
    ("platform", "backend"), [("is_sm120", "flashinfer_cutlass"), ("is_hip", None)]
)
def test_sm12x_resolves_auto_for_a_mixed_checkpoint(
    tmp_path, monkeypatch, asked, platform, backend
):
    facts = dict.fromkeys(("is_sm100", "is_sm110", "is_sm120", "is_npu", "is_hip"))
    monkeypatch.setattr(
        overrides, "get_platform", lambda: SimpleNamespace(**facts | {platform: True})
    )
    monkeypatch.setattr(
        overrides, "model_config_of", lambda _: mixed(tmp_path, "NVFP4")
    )
    view = SimpleNamespace(moe_runner_backend="auto", quantization=asked)
    resolved = overrides._moe_runner_backend_quant_constraints(view)
    assert resolved.get("moe_runner_backend") == backend
