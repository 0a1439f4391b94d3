"""A checkpoint or flag that cannot be served ends the command in one clear message."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from resolver import Resolver
from tiny_qwen.variants import VARIANTS

from harness.models import DENSE_MODEL, build_variant
from local_server import ServerConfig
from sglang.srt.arg_groups.launch_error import LaunchError, message_or
from sglang.srt.arg_groups.remap.report import RemapError
from sglang.srt.speculative.nextn.completeness import IncompleteHeadError
from sglang.srt.speculative.nextn.safetensors_header import CheckpointError

NEXTN = ("--speculative-algorithm", "NEXTN")
BROKEN = [name for name, variant in VARIANTS.items() if not variant.valid]
# A tensor that is not there, a head that is not there, a file that is damaged.
LAUNCHED = ("missing_mtp_tensor", "dropped_mtp_head", "truncated_shard")
# Nearly all of both is imports: an error that loads weights or starts processes is far
# beyond. On two quiet cores an error takes 9 seconds from launch.
MOST_TIMES_HELP = 3


@dataclass(frozen=True)
class Ended:
    """What came of a command: its status, what it printed, its seconds of CPU time."""

    status: int
    printed: str
    seconds: float


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a broken variant by name."""
    folders: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in folders:
            folders[name] = build_variant(name, tmp_path_factory.mktemp(name))
        return folders[name]

    return folder


@pytest.mark.parametrize("name", BROKEN)
def test_resolution_refuses_a_broken_checkpoint(fork: Resolver, broken, name) -> None:
    resolution = fork.resolve(NEXTN, model=broken(name))
    assert resolution.error is not None
    kind, message = resolution.error
    assert kind == "LaunchError"
    for word in VARIANTS[name].error_names:
        assert word in message
    assert "\n  File" not in message


def test_commands_on_broken_checkpoints_print_the_message_alone(broken) -> None:
    of_help = ServerConfig(str(DENSE_MODEL), arguments=("--help",))
    configs = [ServerConfig(str(broken(name)), nextn=True) for name in LAUNCHED]
    helped, *all_ended = launch_two_at_a_time([of_help, *configs])
    assert helped.status == 0
    for name, ended in zip(LAUNCHED, all_ended, strict=True):
        assert ended.status == 1, ended.printed
        assert "Traceback" not in ended.printed
        assert ended.seconds < MOST_TIMES_HELP * helped.seconds
        _, mark, message = ended.printed.partition("--speculative-algorithm NEXTN: ")
        assert mark, ended.printed
        for word in VARIANTS[name].error_names:
            assert word in message


@pytest.mark.exhaustive
def test_what_a_scheduler_refuses_is_no_traceback_either() -> None:
    """Decode graphs are refused where they would be captured, in another process."""
    config = ServerConfig(
        str(DENSE_MODEL),
        arguments=(
            *("--cuda-graph-backend-decode", "full"),
            *("--remap-policy", "error"),
        ),
    )
    (ended,) = launch_two_at_a_time([config])
    assert ended.status != 0
    assert "--cuda-graph-backend-decode" in ended.printed
    assert "Scheduler hit an exception: --remap-policy error: 1 " in ended.printed
    assert "Traceback" not in ended.printed


@pytest.mark.parametrize("kind", [RemapError, IncompleteHeadError, CheckpointError])
def test_each_error_of_ours_is_a_launch_error_and_a_value_error(kind) -> None:
    assert issubclass(kind, LaunchError)
    assert issubclass(kind, ValueError)


def test_a_bug_keeps_its_traceback() -> None:
    for error, said in ((LaunchError("do this"), "do this"), (ValueError(), "trace")):
        try:
            raise error
        except ValueError:
            assert message_or(lambda: "trace") == said


def launch_two_at_a_time(configs: list[ServerConfig]) -> list[Ended]:
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(launch, configs))


def launch(config: ServerConfig) -> Ended:
    """Run the command until it ends by itself; a server that starts is an error."""
    environment = {**os.environ, **config.variables()}
    # With bytecode that is never written, every import is the first one.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with subprocess.Popen(
        config.command(port=1),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        # Every child has the pipe too: its end is the end of all of them.
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return Ended(process.returncode, printed, usage.ru_utime + usage.ru_stime)
