import tempfile
from pathlib import Path

import pytest
from head_files import (
    DENSE_CONFIG,
    MOE_CONFIG,
    bf16,
    dense_head,
    gated_mlp,
    moe_head,
    nvfp4,
    quantize,
    with_text,
    write_checkpoint,
    write_index,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang.srt.speculative.nextn.completeness import (
    IncompleteHeadError,
    NoHeadError,
    Problem,
    ProblemKind,
)
from sglang.srt.speculative.nextn.head_plan import plan_head

NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["mtp*"]}
O_PROJ = "mtp.layers.0.self_attn.o_proj"


def error_of(folder, config=DENSE_CONFIG):
    with pytest.raises(IncompleteHeadError) as caught:
        plan_head(folder, config)
    return caught.value


def check(folder, head, config=DENSE_CONFIG):
    return error_of(write_checkpoint(folder, head, config), config)


@pytest.mark.parametrize(
    ("head", "config", "num_layers"),
    [
        (dense_head(), DENSE_CONFIG, 1),
        (dense_head(2), with_text(DENSE_CONFIG, mtp_num_hidden_layers=2), 2),
        (dense_head(2), with_text(DENSE_CONFIG, mtp_num_hidden_layers=None), 2),
        (moe_head(), MOE_CONFIG, 1),
        (moe_head(packed=True), MOE_CONFIG, 1),
    ],
)
def test_complete_head_is_planned(tmp_path, head, config, num_layers):
    plan = plan_head(write_checkpoint(tmp_path, head, config), config)
    assert plan.problems == ()
    assert plan.num_layers == num_layers
    assert {t.name for m in plan.inventory.modules for t in m.found.values()} == set(
        head
    )


def test_fused_projections_are_complete(tmp_path):
    split = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
    head = {
        name: tensor
        for name, tensor in dense_head().items()
        if name.split(".")[-2] not in split
    } | {
        "mtp.layers.0.self_attn.qkv_proj.weight": bf16(384, 128),
        "mtp.layers.0.mlp.gate_up_proj.weight": bf16(512, 128),
    }
    assert plan_head(write_checkpoint(tmp_path, head), DENSE_CONFIG).problems == ()


def test_scales_of_the_kv_cache_and_rotary_tables_are_no_surplus(tmp_path):
    attention = "mtp.layers.0.self_attn"
    head = dense_head() | {
        f"{attention}.k_proj.k_scale": ("F32", ()),
        f"{attention}.v_proj.v_scale": ("F32", ()),
        f"{attention}.k_scale": ("F32", (1,)),
        f"{attention}.rotary_emb.inv_freq": ("F32", (16,)),
    }
    assert plan_head(write_checkpoint(tmp_path, head), DENSE_CONFIG).problems == ()


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(moe_head())))
def test_any_missing_tensor_is_named_with_shard_and_shape(name):
    head = moe_head()
    _, shape = head.pop(name)
    with tempfile.TemporaryDirectory() as folder:
        error = check(Path(folder), head, MOE_CONFIG)
    assert error.problems == (
        Problem(ProblemKind.MISSING, name, "model-2.safetensors", "", str(list(shape))),
    )
    assert name in str(error)
    assert "model-2.safetensors" in str(error)
    assert str(list(shape)) in str(error)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(dense_head())),
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
)
def test_any_wrong_shape_is_named_with_both_shapes(name, shape):
    head = dense_head()
    _, expected = head[name]
    head[name] = bf16(*shape)
    with tempfile.TemporaryDirectory() as folder:
        error = check(Path(folder), head)
    assert error.problems == (
        Problem(
            ProblemKind.WRONG_SHAPE,
            name,
            "model-2.safetensors",
            str(shape),
            str(list(expected)),
        ),
    )


def test_left_over_tensor_is_named_with_its_shape(tmp_path):
    extra = "mtp.layers.0.self_attn.extra_proj.weight"
    error = check(tmp_path, dense_head() | {extra: bf16(3, 5)})
    assert error.problems == (
        Problem(ProblemKind.LEFT_OVER, extra, "model-2.safetensors", "BF16 [3, 5]", ""),
    )


def test_wrong_dtype_is_named(tmp_path):
    error = check(tmp_path, dense_head() | {"mtp.norm.weight": ("I64", (128,))})
    (problem,) = error.problems
    assert problem.kind is ProblemKind.WRONG_DTYPE
    assert (problem.name, problem.found) == ("mtp.norm.weight", "I64")


def test_bias_of_an_attention_projection_is_left_over(tmp_path):
    bias = "mtp.layers.0.self_attn.q_proj.bias"
    error = check(tmp_path, dense_head() | {bias: bf16(256)})
    assert [(p.kind, p.name) for p in error.problems] == [(ProblemKind.LEFT_OVER, bias)]


def test_missing_companion_of_a_quantized_weight_is_named(tmp_path):
    head = quantize(dense_head(), [O_PROJ], nvfp4(128, 128))
    del head[f"{O_PROJ}.weight_scale_2"]
    error = check(tmp_path, head)
    assert error.problems == (
        Problem(
            ProblemKind.MISSING,
            f"{O_PROJ}.weight_scale_2",
            "model-2.safetensors",
            "",
            "[] or [1]",
        ),
    )


def test_missing_weight_of_a_quantized_module_is_named(tmp_path):
    head = quantize(dense_head(), [O_PROJ], nvfp4(128, 128))
    del head[f"{O_PROJ}.weight"]
    error = check(tmp_path, head)
    assert [p.name for p in error.problems] == [f"{O_PROJ}.weight"]
    assert error.problems[0].expected == "[128, 64]"


def test_stale_scale_beside_an_unquantized_weight_is_left_over(tmp_path):
    scale = f"{O_PROJ}.weight_scale"
    error = check(tmp_path, dense_head() | {scale: ("F32", ())})
    assert [(p.kind, p.name) for p in error.problems] == [
        (ProblemKind.LEFT_OVER, scale)
    ]


def test_wrong_scale_shape_is_named(tmp_path):
    head = quantize(dense_head(), [O_PROJ], nvfp4(128, 128))
    head[f"{O_PROJ}.weight_scale"] = ("F8_E4M3", (128, 4))
    (problem,) = check(tmp_path, head).problems
    assert (problem.found, problem.expected) == ("[128, 4]", "[128, 8]")


def test_parts_of_a_fused_module_must_be_stored_alike(tmp_path):
    head = quantize(dense_head(), ["mtp.layers.0.self_attn.q_proj"], nvfp4(256, 128))
    (problem,) = check(tmp_path, head).problems
    assert problem.kind is ProblemKind.MIXED
    assert problem.name == "mtp.layers.0.self_attn.qkv_proj"
    assert "q_proj NVFP4" in problem.found


def test_missing_experts_are_listed_as_ranges(tmp_path):
    head = {n: t for n, t in moe_head().items() if ".experts.1." not in n}
    del head["mtp.layers.0.mlp.experts.2.up_proj.weight"]
    error = check(tmp_path, head, MOE_CONFIG)
    assert len(error.problems) == 4
    lines = [line for line in str(error).splitlines() if line.startswith("  ")]
    assert len(lines) == 3
    assert "experts.{1-2}.up_proj.weight" in str(error)
    assert "experts.1.down_proj.weight" in str(error)


def test_config_with_more_layers_than_weights(tmp_path):
    config = with_text(DENSE_CONFIG, mtp_num_hidden_layers=2)
    error = check(tmp_path, dense_head(), config)
    contradiction, *missing = error.problems
    assert contradiction.kind is ProblemKind.CONFIG
    assert contradiction.name == "mtp_num_hidden_layers"
    assert contradiction.found == "2"
    assert contradiction.expected.startswith("1,")
    assert len(missing) == 11
    assert all(p.name.startswith("mtp.layers.1.") for p in missing)


@pytest.mark.parametrize("configured", [0, 1])
def test_config_with_fewer_layers_than_weights(tmp_path, configured):
    config = with_text(DENSE_CONFIG, mtp_num_hidden_layers=configured)
    error = check(tmp_path, dense_head(2), config)
    contradiction, *left_over = error.problems
    assert contradiction.name == "mtp_num_hidden_layers"
    assert {p.kind for p in left_over} == {ProblemKind.LEFT_OVER}
    assert len(left_over) == 11 * (2 - configured)


def test_config_with_another_number_of_experts(tmp_path):
    config = with_text(MOE_CONFIG, num_experts=3)
    names = [p.name for p in check(tmp_path, moe_head(), config).problems]
    assert names[0] == "num_experts"
    assert "mtp.layers.0.mlp.gate.weight" in names
    assert "mtp.layers.0.mlp.experts.3.up_proj.weight" in names


def test_dense_config_with_expert_weights(tmp_path):
    problem = check(tmp_path, moe_head(), DENSE_CONFIG).problems[0]
    assert (problem.kind, problem.found) == (ProblemKind.CONFIG, "a dense model")


def test_moe_config_with_dense_weights(tmp_path):
    problem = check(tmp_path, dense_head(), MOE_CONFIG).problems[0]
    assert problem.kind is ProblemKind.CONFIG
    assert problem.found == "a mixture-of-experts model"


def test_expert_beyond_the_last_is_left_over(tmp_path):
    head = moe_head() | gated_mlp("mtp.layers.0.mlp.experts.4", 64)
    problems = check(tmp_path, head, MOE_CONFIG).problems
    assert [p.name for p in problems if p.kind is ProblemKind.LEFT_OVER] == [
        f"mtp.layers.0.mlp.experts.4.{name}_proj.weight"
        for name in ("gate", "up", "down")
    ]


def test_experts_in_both_forms_leave_one_form_over(tmp_path):
    problems = check(tmp_path, moe_head() | moe_head(packed=True), MOE_CONFIG).problems
    assert [(p.kind, p.name) for p in problems] == [
        (ProblemKind.LEFT_OVER, f"mtp.layers.0.mlp.experts.{name}_proj")
        for name in ("gate_up", "down")
    ]


def test_dropped_head_is_said_in_plain_words_with_two_ways_on(tmp_path):
    error = check(tmp_path, {})
    assert not isinstance(error, NoHeadError)
    text = str(error)
    assert "mtp_num_hidden_layers = 1" in text
    assert "not one mtp.* tensor" in text
    assert "dropped the head" in text
    assert "Use a checkpoint whose MTP head is complete" in text
    assert "without --speculative-algorithm" in text


@pytest.mark.parametrize("layers", [0, None])
def test_model_that_never_had_a_head(tmp_path, layers):
    config = with_text(DENSE_CONFIG, mtp_num_hidden_layers=layers)
    error = check(tmp_path, {}, config)
    assert isinstance(error, NoHeadError)
    assert "dropped" not in str(error)


def test_renamed_head_is_not_called_dropped(tmp_path):
    head = {f"model.{name}": tensor for name, tensor in dense_head().items()}
    text = str(check(tmp_path, head))
    assert "model.mtp." in text
    assert "expected mtp.*" in text


def test_tensor_in_another_shard_than_indexed_is_named_with_both(tmp_path):
    write_checkpoint(tmp_path, dense_head())
    wrong = {"model-1.safetensors": {"mtp.fc.weight": bf16(1)}}
    rest = {n: t for n, t in dense_head().items() if n != "mtp.fc.weight"}
    write_index(tmp_path, {**wrong, "model-2.safetensors": rest})
    (problem,) = error_of(tmp_path).problems
    assert (problem.name, problem.shard) == ("mtp.fc.weight", "model-1.safetensors")
    assert "model-2.safetensors" in problem.found


def test_index_alone_is_checked_by_names(tmp_path):
    head = dense_head()
    del head["mtp.fc.weight"]
    write_index(tmp_path, {"model-9.safetensors": head})
    error = error_of(tmp_path / "model.safetensors.index.json")
    assert [p.name for p in error.problems] == ["mtp.fc.weight"]
