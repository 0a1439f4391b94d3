"""What is decided after resolution is reported where it is decided, once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang.srt.arg_groups.remap.late import (
    all_remaps,
    late_remaps,
    overwriter,
    report_late_remap,
)
from sglang.srt.arg_groups.remap.report import RemapError
from sglang.srt.environ import envs
from sglang.srt.runtime_context import (
    get_context,
    publish,
    restore_context,
    snapshot_context,
)
from sglang.srt.server_args import prepare_server_args

LOGGER = "sglang.srt.arg_groups.remap.report"


@pytest.fixture
def server(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """Publishes a command line as the scheduler does; the old context comes back."""
    before = snapshot_context()
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)

    def start(*argv: str) -> Any:
        record = prepare_server_args(
            ["--model-path", str(models["llama"]), "--device", "cpu", *argv]
        )
        publish(record, role="scheduler")
        return record

    yield start
    restore_context(before)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def test_a_setting_of_the_user_is_reported_once(server, caplog) -> None:
    record = server("--moe-runner-backend", "flashinfer_cutlass")
    for _ in range(2):
        report_late_remap("moe_runner_backend", effective="triton", rule="MoeRunner")
    (line,) = lines(caplog)
    assert line.startswith(
        "--moe-runner-backend: asked flashinfer_cutlass, using triton, by MoeRunner"
    )
    (remap,) = late_remaps(record)
    assert json.loads(json.dumps(remap)) == remap
    assert remap["effective"] == "triton"


def test_the_runner_of_a_layer_reports_itself(server, caplog) -> None:
    from sglang.srt.layers.moe import MoeRunnerConfig, initialize_moe_config
    from sglang.srt.layers.moe.moe_runner.runner import MoeRunner
    from sglang.srt.layers.moe.utils import MoeRunnerBackend

    server("--moe-runner-backend", "flashinfer_cutlass")
    initialize_moe_config()
    MoeRunner(MoeRunnerBackend.TRITON, MoeRunnerConfig())
    assert len(lines(caplog)) == 1


@pytest.mark.parametrize("argv", [[], ["--moe-runner-backend", "auto"]])
def test_what_is_left_to_the_server_is_not_reported(server, caplog, argv) -> None:
    record = server(*argv)
    report_late_remap("moe_runner_backend", effective="triton", rule="MoeRunner")
    assert lines(caplog) == [] and late_remaps(record) == []


def test_an_override_of_the_runtime_context_is_reported(server, caplog) -> None:
    server("--grammar-backend", "xgrammar")
    get_context().override("grammar.import_fallback", grammar_backend="none")
    (line,) = lines(caplog)
    assert (
        "asked xgrammar, using none, by grammar.import_fallback: xgrammar does" in line
    )


def test_what_the_operator_asks_of_a_running_server_is_not(server, caplog) -> None:
    server("--page-size", "64")
    get_context().override("update_server_args", page_size=1)
    assert lines(caplog) == []


def test_a_backend_that_is_kept_is_not_reported(server, caplog) -> None:
    from sglang.srt.layers.quantization.fp4_utils import initialize_fp4_gemm_config

    server("--fp4-gemm-backend", "flashinfer_cutlass")
    initialize_fp4_gemm_config()
    assert lines(caplog) == []


def test_an_overwritten_variable_is_reported(server, caplog, monkeypatch) -> None:
    monkeypatch.setenv("SGLANG_FLASHINFER_WORKSPACE_SIZE", "1024")
    server()
    overwriter(envs.SGLANG_FLASHINFER_WORKSPACE_SIZE, "FlashInferAttnBackend")(2048)
    (line,) = lines(caplog)
    assert line.startswith(
        "SGLANG_FLASHINFER_WORKSPACE_SIZE: asked 1024, using 2048, by FlashInfer"
    )


def test_error_refuses_a_late_remap(server) -> None:
    server("--moe-runner-backend", "flashinfer_cutlass", "--remap-policy", "error")
    with pytest.raises(RemapError, match="flashinfer_cutlass"):
        report_late_remap("moe_runner_backend", effective="triton", rule="MoeRunner")


def test_server_info_lists_a_remap_of_two_schedulers_once(server) -> None:
    record = server("--moe-runner-backend", "flashinfer_cutlass", "--pre-warm-nccl")
    report_late_remap("moe_runner_backend", effective="triton", rule="MoeRunner")
    state = {"remaps": late_remaps(record)}
    remaps = all_remaps(record, [state, state])
    assert [remap["setting"] for remap in remaps] == [
        "pre_warm_nccl",
        "moe_runner_backend",
    ]


def test_engine_refuses_before_it_starts_anything(models, monkeypatch) -> None:
    from sglang.srt.entrypoints.engine import Engine

    monkeypatch.setattr("logging.basicConfig", lambda **_: None)
    with pytest.raises(RemapError) as error:
        Engine(
            model_path=str(models["llama"]),
            device="cpu",
            enable_symm_mem=True,
            remap_policy="error",
        )
    (remap,) = error.value.remaps
    assert remap.request.name == "enable_symm_mem"
    assert "enable_symm_mem (keyword): asked on, using off" in str(error.value)
