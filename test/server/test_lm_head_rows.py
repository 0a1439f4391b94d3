"""With the real vocabulary, draft-extend computes lm_head for one row a request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tiny_qwen.large_vocabulary import VOCABULARY, write_large_vocabulary

from harness.client import Client
from harness.plugins import lm_head_rows
from local_server import LocalServer, ServerConfig, plugin_environment

STEPS = 3
CONCURRENT = 3
FLAGS = ("--skip-server-warmup", "--sleep-on-idle")
FLAGS += ("--speculative-num-steps", str(STEPS), "--speculative-eagle-topk", "1")
FLAGS += ("--speculative-num-draft-tokens", str(STEPS + 1))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the plugin wrote while a server completed prompts, some at once."""
    folder = tmp_path_factory.mktemp("lm_head_rows")
    write_large_vocabulary(folder / "model", hidden_size=64)
    written = folder / "rows.txt"
    config = ServerConfig(
        str(folder / "model"),
        nextn=True,
        arguments=FLAGS,
        environment=plugin_environment(
            Path(lm_head_rows.__file__),
            folder / "plugins",
            {lm_head_rows.FILE_VARIABLE: str(written)},
        ),
    )
    with LocalServer(config, folder / "server.log") as server:
        client = Client(server.wait().url, server.log)
        prompts = [[5, 6, 7], [8, 9, 10, 11], [12]]
        sampling = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
        client.generate(prompts[0], sampling)
        client.generate_together(prompts[:CONCURRENT], sampling)
    yield written


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
