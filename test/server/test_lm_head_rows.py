"""With the real vocabulary, draft-extend computes lm_head for one row a request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from tiny_qwen.large_vocabulary import VOCABULARY, write_large_vocabulary

from harness.client import Client
from harness.plugins import lm_head_rows
from local_server import LocalServer, ServerConfig

PLUGIN = Path(lm_head_rows.__file__)
STEPS = 3
CONCURRENT = 3
FLAGS = ("--skip-server-warmup", "--sleep-on-idle")
FLAGS += ("--speculative-num-steps", str(STEPS), "--speculative-eagle-topk", "1")
FLAGS += ("--speculative-num-draft-tokens", str(STEPS + 1))


@dataclass(frozen=True)
class WatchedConfig(ServerConfig):
    """A server that loads the plugin from ``plugins`` and writes to ``rows``."""

    plugins: str = ""
    rows: str = ""

    def variables(self) -> dict[str, str]:
        paths = [self.plugins, str(PLUGIN.parent), os.environ.get("PYTHONPATH", "")]
        return {
            **super().variables(),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            lm_head_rows.FILE_VARIABLE: self.rows,
        }


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the plugin wrote while a server completed prompts, some at once."""
    folder = tmp_path_factory.mktemp("lm_head_rows")
    write_large_vocabulary(folder / "model", hidden_size=64)
    info = folder / "plugins" / f"{PLUGIN.stem}-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {PLUGIN.stem}\nVersion: 0\n"
    )
    (info / "entry_points.txt").write_text(
        f"[sglang.srt.plugins]\n{PLUGIN.stem} = {PLUGIN.stem}:register\n"
    )
    config = WatchedConfig(
        str(folder / "model"),
        nextn=True,
        arguments=FLAGS,
        plugins=str(info.parent),
        rows=str(folder / "rows.txt"),
    )
    with LocalServer(config, folder / "server.log") as server:
        client = Client(server.wait().url, server.log)
        prompts = [[5, 6, 7], [8, 9, 10, 11], [12]]
        sampling = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
        client.generate(prompts[0], sampling)
        client.generate_together(prompts[:CONCURRENT], sampling)
    yield folder / "rows.txt"


def test_draft_extend_sends_one_row_a_request_to_lm_head(rows: Path) -> None:
    noted = [line.split() for line in rows.read_text().splitlines()]
    forwards = [(mode, int(count)) for mode, count, _ in noted]
    assert {int(size) for *_, size in noted} == {VOCABULARY}
    sizes = set()
    for (mode, count), (following, its_count) in pairwise(forwards):
        if mode == "TARGET_VERIFY":
            requests, rest = divmod(count, STEPS + 1)
            assert (rest, following, its_count) == (0, "DRAFT_EXTEND_V2", requests)
            sizes.add(requests)
    assert {1, CONCURRENT} <= sizes, "no round had every request in it"
