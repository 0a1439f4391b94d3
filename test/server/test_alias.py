"""NEXTN gives the tokens and the drafts of upstream's alias, in float32.

The alias runs from a tree of its own (``fork/alias.py``): upstream's wheel with the CPU
operators and fixes alone, which makes EAGLE of NEXTN and drives the head of the
target's own checkpoint as a foreign draft model.
"""

from __future__ import annotations

import pytest

from harness.client import Client
from harness.drafts import outcomes_of
from harness.pool import ServerPool
from harness.prompts import held_out_prompts
from harness.servers import speculating
from local_server import ServerConfig

NEW_TOKENS = 40
NUM_PROMPTS = 10
STEPS = (1, 2, 3, 5)
# What each alias is compared with: the server of these tests with the same steps.
NATIVE = {"dense_alias": "dense_small_pool", "moe_alias": "moe_nextn"}


@pytest.mark.parametrize("server", NATIVE, indirect=True)
def test_shared_servers(
    server_pool: ServerPool,
    configs: dict[str, ServerConfig],
    server: Client,
    request: pytest.FixtureRequest,
) -> None:
    alias = request.node.callspec.params["server"]
    assert_same(*server_pool.get(configs[NATIVE[alias]], configs[alias]), num_steps=3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("num_steps", STEPS)
@pytest.mark.parametrize("model", ["dense", "moe"])
def test_each_number_of_steps(
    server_pool: ServerPool, folders: dict[str, str], model: str, num_steps: int
) -> None:
    native, alias = server_pool.get(
        *(
            speculating(model, num_steps, upstream).config(folders)
            for upstream in (False, True)
        )
    )
    assert_same(native, alias, num_steps)


def assert_same(native: Client, alias: Client, num_steps: int) -> None:
    for client, algorithm in ((native, "NEXTN"), (alias, "EAGLE")):
        info = client.server_info()
        assert info["speculative_algorithm"] == algorithm
        assert info["speculative_num_steps"] == num_steps
    prompts = held_out_prompts()[:NUM_PROMPTS]
    outcomes = [outcomes_of(client, prompts, NEW_TOKENS) for client in (native, alias)]
    assert outcomes[0] == outcomes[1]
    # Equal for a reason: every position has accepted drafts, and none all of them.
    for position in range(num_steps):
        accepted = sum(
            outcome.drafts.accepted[position]
            for outcome in outcomes[0]
            if position < len(outcome.drafts.accepted)
        )
        verifies = sum(outcome.drafts.num_verifies for outcome in outcomes[0])
        assert 0 < accepted < verifies
