"""--remap-policy: warn changes nothing, error refuses, silent says nothing."""

from __future__ import annotations

from resolver import Resolver

TWO_REMAPS = ["--enable-symm-mem", "--sampling-backend", "flashinfer"]


def test_error_lists_all_and_starts_nothing(fork: Resolver) -> None:
    resolution = fork.resolve([*TWO_REMAPS, "--remap-policy", "error"], launch=True)
    assert resolution.error is not None
    kind, message = resolution.error
    assert kind == "RemapError"
    first, *listed, last = message.splitlines()
    assert first == "--remap-policy error: 2 settings would not run as asked."
    settings = {line.split(": ")[0].split(". ")[1] for line in listed}
    assert settings == {"--enable-symm-mem", "--sampling-backend"}
    assert len(listed) == 2
    assert last.startswith("Nothing was started.")
    assert not any(message.startswith("server_args=") for _, message in resolution.log)


def test_error_with_nothing_to_list_goes_on(fork: Resolver) -> None:
    resolution = fork.resolve(["--remap-policy", "error"])
    assert resolution.error is None
    assert resolution.resolved["remap_policy"] == "error"


def test_silent_logs_nothing_and_keeps_the_facts(fork: Resolver) -> None:
    resolution = fork.resolve([*TWO_REMAPS, "--remap-policy", "silent"])
    assert resolution.remap_lines == []
    assert not any("Settings left to" in message for _, message in resolution.log)
    assert {remap["setting"] for remap in resolution.remaps} == {
        "sampling_backend",
        "enable_symm_mem",
    }


def test_warn_is_the_default(fork: Resolver) -> None:
    default, warn = (
        fork.resolve([*TWO_REMAPS, *policy])
        for policy in ([], ["--remap-policy", "warn"])
    )
    assert default.resolved == warn.resolved
    assert default.remap_lines == warn.remap_lines != []
