"""Each variant is what its name says; valid ones compute what their twin computes."""

import json

import pytest
import torch
from safetensors import SafetensorError, safe_open
from tiny_qwen.checkpoint import INDEX_FILE, Checkpoint, read_index
from tiny_qwen.evaluation import encode, load_tokenizer, simulate_prompts
from tiny_qwen.loading import load_model
from tiny_qwen.variants import VARIANTS
from tiny_qwen.variants.architectures import upcycle
from tiny_qwen.variants.layouts import LARGE_VOCABULARY
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

PROMPT = 'def read_lines(path):\n    """Read all lines of the file.\n'
VALID = [name for name, entry in VARIANTS.items() if entry.valid]
BROKEN = [name for name, entry in VARIANTS.items() if not entry.valid]
VOCABULARY = 1024


@pytest.fixture(scope="module")
def logits(variant, trained):
    """float32 logits of transformers by variant, cut to the trained vocabulary."""
    ids = encode(load_tokenizer(trained), PROMPT)[None]
    known = {}

    def compute(name):
        if name not in known:
            is_text = name.endswith("text_only")
            auto = AutoModelForCausalLM if is_text else AutoModelForImageTextToText
            model = auto.from_pretrained(variant(name), dtype=torch.float32)
            with torch.no_grad():
                known[name] = model(input_ids=ids).logits
        return known[name]

    return compute


def shards_by_tensor(folder):
    """The files that hold each tensor, from the files themselves."""
    shards = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as content:
            shards.update(dict.fromkeys(content.keys(), file.name))
    return shards


def mtp_shards(folder):
    shards = shards_by_tensor(folder)
    return {file for name, file in shards.items() if name.startswith("mtp.")}


def mtp_names(folder):
    return {name for name in shards_by_tensor(folder) if name.startswith("mtp.")}


@pytest.mark.parametrize("name", VALID)
def test_transformers_loads_every_valid_variant(logits, name):
    assert logits(name).isfinite().all()


@pytest.mark.parametrize("name", [name for name in VALID if VARIANTS[name].twin])
def test_valid_variant_has_the_logits_of_its_twin(logits, name):
    ours, twin = logits(name), logits(VARIANTS[name].twin)
    torch.testing.assert_close(ours[..., :VOCABULARY], twin[..., :VOCABULARY])


@pytest.mark.parametrize("name", VALID)
def test_every_tensor_lies_where_the_index_says(variant, name):
    folder = variant(name)
    if not (folder / INDEX_FILE).exists():
        assert name == "single_file"
        return
    indexed = read_index(folder)["weight_map"]
    found = shards_by_tensor(folder)
    unindexed = {tensor for tensor in found if tensor not in indexed}
    assert {tensor: found[tensor] for tensor in indexed} == indexed
    if name == "mtp_file_missing_from_index":
        assert unindexed == mtp_names(folder)
    else:
        assert not unindexed


@pytest.mark.parametrize(
    ("name", "files", "with_mtp"),
    [
        ("single_file", 1, 1),
        ("mtp_in_own_shard", 6, 1),
        ("mtp_across_shards", 12, 3),
        ("mtp_mixed_with_trunk", 4, 1),
        ("mtp_file_missing_from_index", 2, 1),
    ],
)
def test_head_lies_in_this_many_of_this_many_files(variant, name, files, with_mtp):
    folder = variant(name)
    assert len(list(folder.glob("*.safetensors"))) == files
    assert len(mtp_shards(folder)) == with_mtp


def test_mixed_shard_holds_trunk_tensors_too(variant):
    folder = variant("mtp_mixed_with_trunk")
    (shard,) = mtp_shards(folder)
    in_shard = [n for n, file in shards_by_tensor(folder).items() if file == shard]
    assert not all(name.startswith("mtp.") for name in in_shard)


def test_large_vocabulary_gives_no_weight_to_new_tokens(logits):
    probabilities = logits("large_vocabulary").softmax(-1)
    assert probabilities.shape[-1] == LARGE_VOCABULARY
    assert probabilities[..., VOCABULARY:].sum(-1).max() < 1e-4


def test_experts_of_the_head_are_packed_or_one_by_one(variant):
    packed = "mtp.layers.0.mlp.experts.gate_up_proj"
    single = "mtp.layers.0.mlp.experts.0.gate_proj.weight"
    assert single in mtp_names(variant("moe"))
    assert packed not in mtp_names(variant("moe"))
    assert packed in mtp_names(variant("moe_packed_mtp"))
    assert single not in mtp_names(variant("moe_packed_mtp"))


def test_experts_without_noise_compute_the_dense_model(trained, tmp_path):
    upcycle(Checkpoint.read(trained), noise=0).write(tmp_path)
    dense, sparse = load_model(trained), load_model(tmp_path)
    ids = encode(load_tokenizer(trained), PROMPT)[None]
    hidden, _ = dense.hidden_states(ids)
    torch.testing.assert_close(sparse.hidden_states(ids)[0], hidden, atol=1e-4, rtol=0)
    ours = sparse.draft_hidden_states(ids, hidden[:, :-4], 3)
    torch.testing.assert_close(
        ours, dense.draft_hidden_states(ids, hidden[:, :-4], 3), atol=1e-4, rtol=0
    )


def test_our_mixture_of_experts_is_that_of_transformers(variant, logits, trained):
    model = load_model(variant("moe"))
    ids = encode(load_tokenizer(trained), PROMPT)[None]
    ours = model.logits(model.hidden_states(ids)[0])
    torch.testing.assert_close(ours, logits("moe"), atol=2e-4, rtol=0)


def test_experts_differ_so_that_a_wrong_route_shows(variant):
    tensors = Checkpoint.read(variant("moe_packed_mtp")).tensors
    experts = tensors["mtp.layers.0.mlp.experts.down_proj"]
    assert not any(experts[0].equal(expert) for expert in experts[1:])


def test_mixture_of_experts_still_accepts_drafts(variant, trained):
    prompt = encode(load_tokenizer(trained), PROMPT)
    (result,) = simulate_prompts(load_model(variant("moe")), [prompt], 48, 3)
    assert result.accept_length > 2


def test_tied_embeddings_have_no_lm_head(variant):
    checkpoint = Checkpoint.read(variant("tied_embeddings"))
    assert "lm_head.weight" not in checkpoint.tensors
    assert checkpoint.config["tie_word_embeddings"]
    assert checkpoint.text_config["tie_word_embeddings"]


def test_two_mtp_layers_have_the_same_names_and_other_values(variant):
    checkpoint = Checkpoint.read(variant("two_mtp_layers"))
    assert checkpoint.text_config["mtp_num_hidden_layers"] == 2
    first = checkpoint.names("mtp.layers.0.")
    second = [name.replace("layers.0.", "layers.1.") for name in first]
    assert checkpoint.names("mtp.layers.1.") == second
    key = "mtp.layers.{}.self_attn.k_proj.weight"
    assert not checkpoint.tensors[key.format(0)].equal(
        checkpoint.tensors[key.format(1)]
    )


def test_fused_projections_hold_the_rows_of_the_split_ones(variant, trained):
    split = Checkpoint.read(trained).tensors
    fused = Checkpoint.read(variant("fused_mtp_projections")).tensors
    attention = "mtp.layers.0.self_attn."
    rows = torch.cat([split[f"{attention}{part}_proj.weight"] for part in "qkv"])
    assert fused[f"{attention}qkv_proj.weight"].equal(rows)
    assert f"{attention}q_proj.weight" not in fused


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [
        ("missing_mtp_tensor", {"mtp.layers.0.self_attn.k_proj.weight"}, set()),
        ("extra_mtp_tensor", set(), {"mtp.layers.0.self_attn.extra_proj.weight"}),
        ("misshapen_mtp_tensor", set(), set()),
        ("fewer_mtp_layers_than_configured", set(), set()),
        ("mtp_head_not_configured", set(), set()),
        ("index_names_wrong_shard", set(), set()),
    ],
)
def test_broken_head_differs_by_these_tensors(variant, trained, name, missing, extra):
    whole, found = mtp_names(trained), mtp_names(variant(name))
    assert (whole - found, found - whole) == (missing, extra)


@pytest.mark.parametrize(
    ("name", "configured", "present"),
    [
        ("dense", 1, {0}),
        ("dropped_mtp_head", 1, set()),
        ("fewer_mtp_layers_than_configured", 2, {0}),
        ("more_mtp_layers_than_configured", 1, {0, 1}),
        ("mtp_head_not_configured", 0, {0}),
    ],
)
def test_configuration_and_weights_have_these_layers(
    variant, name, configured, present
):
    folder = variant(name)
    config = json.loads((folder / "config.json").read_text())["text_config"]
    names = mtp_names(folder)
    layers = {int(n.split(".")[2]) for n in names if n.startswith("mtp.layers.")}
    assert (config["mtp_num_hidden_layers"], layers) == (configured, present)


def test_misshapen_tensor_has_half_of_its_columns(variant, trained):
    name = "mtp.fc.weight"
    rows, columns = Checkpoint.read(trained).tensors[name].shape
    broken = Checkpoint.read(variant("misshapen_mtp_tensor")).tensors[name]
    assert broken.shape == (rows, columns // 2)


def test_missing_expert_is_missing(variant):
    (name,) = VARIANTS["missing_mtp_expert"].error_names
    assert mtp_names(variant("moe")) - mtp_names(variant("missing_mtp_expert")) == {
        name
    }


def test_index_names_a_shard_that_is_missing(variant):
    folder = variant("missing_shard")
    indexed = set(read_index(folder)["weight_map"].values())
    present = {file.name for file in folder.glob("*.safetensors")}
    assert indexed - present == set(VARIANTS["missing_shard"].error_names)


def test_truncated_shard_does_not_open(variant):
    (shard,) = VARIANTS["truncated_shard"].error_names
    with pytest.raises(SafetensorError):
        safe_open(variant("truncated_shard") / shard, "pt").__enter__()


def test_index_names_a_shard_that_holds_other_tensors(variant):
    folder = variant("index_names_wrong_shard")
    indexed, found = read_index(folder)["weight_map"], shards_by_tensor(folder)
    differing = {name for name in indexed if indexed[name] != found[name]}
    assert differing == {"mtp.fc.weight"}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_says_what_it_is_and_keeps_the_tokenizer(variant, name):
    entry = VARIANTS[name]
    assert entry.summary
    assert entry.valid != bool(entry.error_names)
    assert (variant(name) / "tokenizer.json").exists()


def test_writing_over_weights_is_an_error_that_names_them(variant, tmp_path, trained):
    VARIANTS["single_file"].build(trained, tmp_path)
    with pytest.raises(FileExistsError, match=r"model\.safetensors"):
        VARIANTS["single_file"].build(trained, tmp_path)
