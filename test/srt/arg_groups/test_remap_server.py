"""Where people look on a running server: the log, /server_info and the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.client import Client
from local_server import LocalServer, ServerConfig

# Decided in resolution, and when the decode step would be captured.
ASKED = {
    "sampling_backend": ("flashinfer", "pytorch"),
    "cuda_graph_backend_decode": ("full", "disabled"),
}


@pytest.fixture(scope="module")
def server(
    dense_model: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalServer]:
    arguments = ["--enable-metrics", "--skip-server-warmup"]
    for setting, (asked, _) in ASKED.items():
        arguments += ["--" + setting.replace("_", "-"), asked]
    log = tmp_path_factory.mktemp("remaps") / "server.log"
    server = LocalServer(ServerConfig(dense_model, arguments=tuple(arguments)), log)
    try:
        server.wait()
        yield server
    finally:
        server.stop()


def test_server_info_has_them_as_data(server: LocalServer) -> None:
    remaps = Client(server.url).server_info()["remaps"]
    values = {r["setting"]: (r["asked"], r["effective"]) for r in remaps}
    assert values == ASKED


def test_the_metric_has_a_sample_for_each(server: LocalServer) -> None:
    text = Client(server.url).http.get("/metrics/").text
    samples = [
        line for line in text.splitlines() if line.startswith("sglang:remap_info{")
    ]
    assert len(samples) == len(ASKED)
    for setting, (asked, effective) in ASKED.items():
        (sample,) = (s for s in samples if f'setting="{setting}"' in s)
        assert f'asked="{asked}"' in sample and f'effective="{effective}"' in sample
        assert sample.endswith(" 1.0")


def test_the_log_says_each_once_after_the_server_args(server: LocalServer) -> None:
    lines = Path(server.log).read_text().splitlines()
    dump = next(i for i, line in enumerate(lines) if "server_args={" in line)
    for setting in ASKED:
        flag = "--" + setting.replace("_", "-")
        (where,) = (i for i, line in enumerate(lines) if f"{flag}: asked " in line)
        assert where > dump
        assert "\033[" not in lines[where]
