"""What counts as asked: every place where a user can set something."""

from __future__ import annotations

from pathlib import Path

import pytest
from resolver import Resolver


def test_an_abbreviated_flag_is_named_as_it_was_typed(fork: Resolver) -> None:
    (remap,) = fork.resolve(["--enable-symm"]).remaps
    assert (remap["setting"], remap["written_as"]) == (
        "enable_symm_mem",
        "--enable-symm",
    )


def test_a_flag_with_an_equals_sign_is_recognised(fork: Resolver) -> None:
    (remap,) = fork.resolve(["--sampling-backend=flashinfer"]).remaps
    assert remap["written_as"] == "--sampling-backend"


@pytest.mark.parametrize("form", ["--config {}", "--config={}"])
def test_a_config_file_asks_and_is_named(
    fork: Resolver, tmp_path: Path, form: str
) -> None:
    config = tmp_path / "serve.yaml"
    config.write_text("sampling-backend: flashinfer\n")
    resolution = fork.resolve(form.format(config).split())
    (remap,) = resolution.remaps
    assert remap["source"] == "config file"
    (line,) = resolution.remap_lines
    assert line.startswith(f"sampling-backend (in {config}): asked flashinfer")
    assert line.endswith("To silence this line: sampling-backend: pytorch.")


def test_a_false_in_a_config_file_asks_for_off(fork: Resolver, tmp_path: Path) -> None:
    config = tmp_path / "serve.yaml"
    config.write_text("disable-overlap-schedule: false\n")
    (remap,) = fork.resolve(
        ["--config", str(config), "--speculative-algorithm", "NGRAM"]
    ).remaps
    assert remap["setting"] == "disable_overlap_schedule"
    assert (remap["asked"], remap["effective"]) == (False, True)
    assert remap["rule"] == "_disable_overlap_schedule_for_cpu"


def test_the_command_line_goes_before_the_config_file(
    fork: Resolver, tmp_path: Path
) -> None:
    config = tmp_path / "serve.yaml"
    config.write_text("page-size: 16\n")
    (remap,) = fork.resolve(
        f"--config {config} --attention-backend flashmla --page-size 32".split()
    ).remaps
    assert (remap["asked"], remap["source"]) == (32, "command line")


def test_a_keyword_asks_even_for_the_default(fork: Resolver) -> None:
    keywords = {"moe_a2a_backend": "deepep", "tp_size": 2, "ep_size": 1}
    resolution = fork.resolve(keywords=keywords)
    (remap,) = resolution.remaps
    assert (remap["setting"], remap["source"]) == ("ep_size", "keyword")
    (line,) = resolution.remap_lines
    assert line.startswith("ep_size (keyword): asked 1, using 2")
    assert line.endswith("To silence this line: ep_size=2.")


def test_what_nobody_asked_for_is_no_remap(fork: Resolver) -> None:
    resolution = fork.resolve(["--moe-a2a-backend", "deepep", "--tp-size", "2"])
    assert resolution.resolved["ep_size"] == 2
    assert resolution.remaps == []
