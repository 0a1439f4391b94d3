"""A setting that is not run as asked is reported in one line; nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from model_configs import write_config
from remap_cases import CASES, CLEAN, Case, words
from resolver import Resolution, Resolver


def value_at(resolved: dict[str, Any], path: tuple[str, ...]) -> Any:
    for key in path:
        resolved = resolved[key]
    return resolved


def resolve(resolver: Resolver, case: Case, models: dict[str, Path]) -> Resolution:
    argv = words(case.argv, models)
    resolution = resolver.resolve(argv, environment=case.environment)
    assert resolution.error is None
    return resolution


def same(left: Any, right: Any) -> bool:
    return left == (pytest.approx(right) if isinstance(right, float) else right)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_remap_gives_one_line_with_asked_and_effective(
    fork: Resolver, models: dict[str, Path], case: Case
) -> None:
    resolution = resolve(fork, case, models)
    (remap,) = (r for r in resolution.remaps if r["setting"] == case.setting)
    assert same(remap["asked"], case.asked) and same(remap["effective"], case.effective)
    assert remap["rule"] == case.rule
    lines = [
        line
        for line in resolution.remap_lines
        if line.startswith(f"{remap['written_as']}: asked ")
    ]
    assert len(lines) == 1 and "\n" not in lines[0]
    assert f", by {case.rule}" in lines[0]
    assert len(resolution.remap_lines) == len(resolution.remaps)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_stock_runs_the_same_value_and_reports_nothing(
    stock: Resolver, models: dict[str, Path], case: Case
) -> None:
    resolution = resolve(stock, case, models)
    assert resolution.remaps == [] and resolution.remap_lines == []
    if not case.setting.startswith("SGLANG_"):
        assert same(resolution.raw[case.setting], case.asked)
    path = (case.setting,) if case.read is None else case.read
    if path:
        assert same(value_at(resolution.resolved, path), case.effective)


@pytest.mark.parametrize("argv", CLEAN)
def test_a_command_line_that_runs_as_typed_gives_no_line(
    fork: Resolver, models: dict[str, Path], argv: str
) -> None:
    resolution = fork.resolve(words(argv, models))
    assert resolution.error is None
    assert resolution.remaps == [] and resolution.remap_lines == []


def test_a_line_says_why_and_what_to_type(fork: Resolver) -> None:
    (line,) = fork.resolve(
        ["--attention-backend", "flashmla", "--page-size", "16"]
    ).remap_lines
    assert line == (
        "--page-size: asked 16, using 64, by _mla_backend_page_constraints: the "
        "attention backend takes only certain page sizes. To get 16, choose another "
        "--attention-backend. To silence this line: --page-size 64."
    )


def test_nextn_with_a_draft_of_its_own_gives_one_line_and_the_reason(
    fork: Resolver, models: dict[str, Path], dense_model: str
) -> None:
    argv = "--speculative-algorithm nextn --speculative-draft-model-path {llama}"
    resolution = fork.resolve(words(argv, models), model=Path(dense_model))
    (line,) = resolution.remap_lines
    assert line.startswith(
        "--speculative-algorithm: asked nextn, using EAGLE, by "
        "resolve_nextn_algorithm: --speculative-draft-model-path names another"
    )
    assert resolution.resolved["speculative_algorithm"] == "EAGLE"


def test_a_draft_path_for_a_model_with_a_head_is_answered_by_its_name(
    fork: Resolver, models: dict[str, Path], tmp_path: Path
) -> None:
    target = write_config(tmp_path / "mistral", architectures=["Glm4MoeForCausalLM"])
    argv = f"--speculative-algorithm EAGLE --speculative-draft-model-path {target}"
    resolution = fork.resolve(argv.split(), model=target)
    lines = [m for _, m in resolution.log if "--speculative-draft-model-path" in m]
    assert any(line.startswith("Glm4MoeForCausalLM ships its MTP") for line in lines)
    assert not any("DeepSeek" in message for _, message in resolution.log)


def test_typing_what_the_line_says_silences_it(fork: Resolver) -> None:
    asked = ["--attention-backend", "flashmla", "--page-size"]
    assert fork.resolve([*asked, "16"]).remap_lines
    assert fork.resolve([*asked, "64"]).remap_lines == []


def test_untouched_defaults_are_one_table_at_info(fork: Resolver) -> None:
    resolution = fork.resolve(["--attention-backend", "triton"])
    (table,) = (m for _, m in resolution.log if m.startswith("Settings left to SGLang"))
    level = next(level for level, message in resolution.log if message == table)
    assert level == "INFO"
    rows = table.splitlines()
    assert any("page_size=1" in row and "_page_size_default" in row for row in rows)
    assert "attention_backend=" not in table
    assert max(map(len, rows)) <= 100
