"""Where people look on a running server: the log, /server_info and the metrics."""

from __future__ import annotations

import pytest

from harness.client import Client
from harness.servers import ASKED_IN_VAIN

pytestmark = pytest.mark.parametrize("server", ["moe_plain"], indirect=True)


def test_server_info_has_them_as_data(server: Client) -> None:
    remaps = server.server_info()["remaps"]
    values = {r["setting"]: (r["asked"], r["effective"]) for r in remaps}
    assert values == ASKED_IN_VAIN


def test_the_metric_has_a_sample_for_each(server: Client) -> None:
    text = server.http.get("/metrics/").text
    samples = [
        line for line in text.splitlines() if line.startswith("sglang:remap_info{")
    ]
    assert len(samples) == len(ASKED_IN_VAIN)
    for setting, (asked, effective) in ASKED_IN_VAIN.items():
        (sample,) = (s for s in samples if f'setting="{setting}"' in s)
        assert f'asked="{asked}"' in sample and f'effective="{effective}"' in sample
        assert sample.endswith(" 1.0")


def test_the_log_says_each_once_after_the_server_args(server: Client) -> None:
    lines = server.log.read_text().splitlines()
    dump = next(i for i, line in enumerate(lines) if "server_args={" in line)
    for setting in ASKED_IN_VAIN:
        flag = "--" + setting.replace("_", "-")
        (where,) = (i for i, line in enumerate(lines) if f"{flag}: asked " in line)
        assert where > dump
        assert "\033[" not in lines[where]
