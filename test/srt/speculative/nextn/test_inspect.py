import ast
import json
import runpy
import sys
from pathlib import Path

import pytest
from head_files import (
    DENSE_CONFIG,
    LARGE_CONFIG,
    MOE_CONFIG,
    bf16,
    dense_head,
    large_head,
    moe_head,
    nvfp4,
    quantize,
    trunk,
    with_text,
    write_checkpoint,
    write_index,
    write_shard,
)

from sglang.srt.speculative.nextn import checkpoint as checkpoint_module
from sglang.srt.speculative.nextn import inspect as inspect_module
from sglang.srt.speculative.nextn.inspect import main
from sglang.srt.speculative.nextn.safetensors_header import read_header

NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["mtp*"]}


def inspect(capsys, model):
    """Exit status and JSON of one call."""
    status = main([str(model), "--json"])
    return status, json.loads(capsys.readouterr().out)


def text_of(capsys, model):
    """Exit status and text of one call, with runs of blanks made one."""
    status = main([str(model)])
    return status, " ".join(capsys.readouterr().out.split())


def test_dense_head_in_json(tmp_path, capsys):
    status, report = inspect(capsys, write_checkpoint(tmp_path, dense_head()))
    matrices = 5 * 128 * 256 + 2 * 64 * 128 + 128 * 128
    parameters = matrices + 5 * 128 + 2 * 32
    assert status == 0
    assert report["verdict"] == "yes"
    assert report["native"] is True
    assert report["head"]["num_layers"] == 1
    assert report["head"]["num_tensors"] == 15
    assert report["head"]["num_bytes"] == 2 * parameters
    assert report["head"]["shards"] == ["model-2.safetensors"]
    assert report["head"]["num_shards"] == 2
    assert report["head"]["complete"] is True
    assert report["head"]["storage"]["mtp.fc"] == "BF16"
    assert report["cost"] == {
        "weight_bytes": 2 * parameters,
        "kv_bytes_per_token": 2 * 2 * 32 * 2,
        "active_weight_bytes": 2 * parameters,
        "lm_head_bytes": 2 * 512 * 128,
        "draft_step_bytes": 2 * parameters + 2 * 512 * 128,
        "shared_bytes": 2 * 2 * 512 * 128,
        "is_estimate": False,
    }
    assert "--speculative-algorithm NEXTN" in report["command"]
    assert str(tmp_path) in report["command"]


def test_dense_head_in_text(tmp_path, capsys):
    status, text = text_of(capsys, write_checkpoint(tmp_path, dense_head()))
    assert status == 0
    assert "NEXTN yes, natively" in text
    assert "1 layer, 15 tensors, 385.4 KiB" in text
    assert "shards 1 of 2: model-2.safetensors" in text
    assert "mtp.layers.0.self_attn.qkv_proj BF16" in text
    assert "complete yes" in text


def test_draft_step_of_a_mixture_reads_the_chosen_experts_only(tmp_path, capsys):
    folder = write_checkpoint(tmp_path, moe_head(), MOE_CONFIG)
    _, report = inspect(capsys, folder)
    experts = 2 * 4 * 3 * 64 * 128
    cost = report["cost"]
    assert cost["weight_bytes"] - cost["active_weight_bytes"] == experts // 2


def test_tied_embeddings_are_read_as_lm_head_and_counted_once(tmp_path, capsys):
    config = {**DENSE_CONFIG, "tie_word_embeddings": True}
    tensors = trunk() | dense_head()
    del tensors["lm_head.weight"]
    write_shard(tmp_path / "model.safetensors", tensors)
    (tmp_path / "config.json").write_text(json.dumps(config))
    _, report = inspect(capsys, tmp_path)
    assert report["cost"]["lm_head_bytes"] == 2 * 512 * 128
    assert report["cost"]["shared_bytes"] == 2 * 512 * 128
    assert not report["cost"]["is_estimate"]


def test_index_of_the_397b_model_alone(tmp_path, capsys):
    """The published NVFP4 checkpoint's head: BF16, one layer, 512 experts."""
    config = {**LARGE_CONFIG, "quantization_config": NVFP4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_index(
        tmp_path, {"model-1.safetensors": trunk(), "mtp.safetensors": large_head()}
    )
    status, report = inspect(capsys, tmp_path / "model.safetensors.index.json")
    assert status == 0
    assert report["head"]["num_layers"] == 1
    assert report["head"]["num_tensors"] == 1553
    assert report["head"]["num_bytes"] is None
    assert report["cost"]["is_estimate"] is True
    assert report["command"].split("--model-path ")[1].startswith(f"{tmp_path} ")


def test_estimate_from_the_index_is_what_the_shards_say(tmp_path, capsys):
    write_checkpoint(tmp_path, large_head(), LARGE_CONFIG)
    _, read = inspect(capsys, tmp_path)
    for shard in tmp_path.glob("*.safetensors"):
        shard.unlink()
    _, estimated = inspect(capsys, tmp_path / "model.safetensors.index.json")
    assert read["head"]["num_bytes"] == read["cost"]["weight_bytes"]
    for key in ("weight_bytes", "active_weight_bytes", "kv_bytes_per_token"):
        assert estimated["cost"][key] == read["cost"][key]


def test_of_100_shards_only_those_that_matter_are_opened(tmp_path, capsys, monkeypatch):
    shards = {
        f"model-{i:05d}-of-00100.safetensors": {f"model.layers.{i}.w.weight": bf16(8)}
        for i in range(98)
    }
    shards |= {"model-00098-of-00100.safetensors": trunk()}
    shards |= {"model-00099-of-00100.safetensors": large_head()}
    for name, tensors in shards.items():
        write_shard(tmp_path / name, tensors)
    write_index(tmp_path, shards)
    (tmp_path / "config.json").write_text(json.dumps(LARGE_CONFIG))
    opened = []
    monkeypatch.setattr(
        checkpoint_module,
        "read_header",
        lambda path: opened.append(path.name) or read_header(path),
    )
    status, report = inspect(capsys, tmp_path)
    assert status == 0
    assert (report["head"]["num_shards"], report["head"]["num_tensors"]) == (100, 1553)
    assert opened == sorted(shards)[98:]


def test_quantized_parts_and_disagreements_are_told(tmp_path, capsys):
    head = quantize(dense_head(), ["mtp.layers.0.self_attn.o_proj"], nvfp4(128, 128))
    write_checkpoint(tmp_path, head, quantization=NVFP4)
    status, report = inspect(capsys, tmp_path)
    assert status == 0
    storage = report["head"]["storage"]
    assert storage["mtp.layers.0.self_attn.o_proj"] == "NVFP4 (modelopt)"
    assert storage["mtp.layers.0.mlp.down_proj"] == "BF16"
    assert len(report["head"]["disagreements"]) == 1
    _, text = text_of(capsys, tmp_path)
    assert "note mtp.layers.0.self_attn.o_proj" in text


def test_incomplete_head_is_broken_and_lists_the_tensor(tmp_path, capsys):
    head = dense_head()
    del head["mtp.fc.weight"]
    folder = write_checkpoint(tmp_path, head)
    status, report = inspect(capsys, folder)
    assert (status, report["verdict"], report["native"]) == (2, "broken", False)
    assert report["head"]["complete"] is False
    assert report["problems"] == [
        {
            "kind": "missing",
            "name": "mtp.fc.weight",
            "shard": "model-2.safetensors",
            "found": "",
            "expected": "[128, 256]",
        }
    ]
    assert report["command"] is None
    status, text = text_of(capsys, folder)
    assert status == 2
    assert "missing: mtp.fc.weight in model-2.safetensors: expected [128, 256]" in text


def test_dropped_head_is_broken(tmp_path, capsys):
    status, report = inspect(capsys, write_checkpoint(tmp_path, {}))
    assert (status, report["has_head"], report["head"]) == (2, False, None)
    assert "dropped the head" in report["reason"]


def test_model_without_a_head_is_a_no(tmp_path, capsys):
    config = with_text(DENSE_CONFIG, mtp_num_hidden_layers=None)
    status, report = inspect(capsys, write_checkpoint(tmp_path, {}, config))
    assert (status, report["verdict"], report["has_head"]) == (1, "no", False)
    assert report["command"] is None


def test_head_of_another_architecture_is_a_no_with_a_way_on(tmp_path, capsys):
    config = {"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 2}
    head = {"model.layers.2.eh_proj.weight": bf16(4, 8)}
    folder = write_checkpoint(tmp_path, head, config)
    status, report = inspect(capsys, folder)
    assert (status, report["has_head"]) == (1, True)
    assert "--speculative-algorithm EAGLE" in report["command"]
    status, text = text_of(capsys, folder)
    assert "NEXTN not natively" in text


def test_unknown_architecture_is_a_no(tmp_path, capsys):
    config = {"architectures": ["LlamaForCausalLM"]}
    status, report = inspect(capsys, write_checkpoint(tmp_path, {}, config))
    assert (status, report["has_head"]) == (1, False)


def test_missing_shard_of_the_target_is_broken(tmp_path, capsys):
    write_checkpoint(tmp_path, dense_head())
    (tmp_path / "model-1.safetensors").unlink()
    status, report = inspect(capsys, tmp_path)
    assert status == 2
    assert "model-1.safetensors" in report["reason"]


def test_index_without_config_still_tells_the_head(tmp_path, capsys):
    write_checkpoint(tmp_path, dense_head())
    (tmp_path / "config.json").unlink()
    status, report = inspect(capsys, tmp_path / "model.safetensors.index.json")
    assert (status, report["has_head"]) == (2, True)
    assert report["head"]["num_tensors"] == 15
    assert "config.json" in report["reason"]


@pytest.mark.parametrize("content", [{}, {"notes.txt": "hello"}, {"config.json": "{"}])
def test_folder_that_is_no_checkpoint_is_broken(tmp_path, capsys, content):
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    status, report = inspect(capsys, tmp_path)
    assert status == 2
    assert str(tmp_path) in report["reason"]
    assert text_of(capsys, tmp_path)[0] == 2


def test_model_that_is_not_here_is_broken(tmp_path, capsys):
    status, report = inspect(capsys, tmp_path / "nowhere")
    assert status == 2
    assert "not on this machine" in report["reason"]


def test_text_part_that_the_config_lacks_is_broken(tmp_path, capsys):
    config = with_text(DENSE_CONFIG, hidden_size=None)
    status, report = inspect(capsys, write_checkpoint(tmp_path, dense_head(), config))
    assert status == 2
    assert "hidden_size" in report["reason"]


def test_module_is_a_command(tmp_path, capsys, monkeypatch):
    folder = write_checkpoint(tmp_path, dense_head())
    name = "sglang.srt.speculative.nextn.inspect"
    monkeypatch.setattr(sys, "argv", ["inspect", str(folder)])
    monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit) as stop:
        runpy.run_module(name, run_name="__main__")
    assert stop.value.code == 0
    assert "yes, natively" in capsys.readouterr().out


def test_inspect_imports_nothing_heavy():
    """The modules behind `inspect` import the standard library and safetensors only.

    The one exception is a module of nothing but the standard library itself.
    """
    package = Path(inspect_module.__file__).parent
    prefix = "sglang.srt.speculative.nextn."
    imported, waiting = set(), ["inspect"]
    while waiting:
        for node in ast.walk(ast.parse((package / f"{waiting.pop()}.py").read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names = (
                [a.name for a in node.names] if isinstance(node, ast.Import) else names
            )
            for name in set(names) - imported:
                imported.add(name)
                if name.startswith(prefix):
                    waiting.append(name.removeprefix(prefix))
    imported.remove("sglang.srt.arg_groups.launch_error")
    outside = {n.split(".")[0] for n in imported if not n.startswith(prefix)}
    assert outside - sys.stdlib_module_names == {"safetensors", "huggingface_hub"}
