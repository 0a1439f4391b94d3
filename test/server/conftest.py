"""Clients of the shared servers, and the reference of the model that each one runs."""

from __future__ import annotations

import pytest

from harness.client import Client
from harness.pool import ServerPool
from harness.reference import Reference
from harness.servers import ALL_SERVERS
from local_server import ServerConfig


@pytest.fixture(scope="session")
def folders(dense_model: str, moe_model: str) -> dict[str, str]:
    return {"dense": dense_model, "moe": moe_model}


class Configs(dict[str, ServerConfig]):
    """By name in ``ALL_SERVERS``; made when asked for, since some need a tree built."""

    def __init__(self, folders: dict[str, str]):
        super().__init__()
        self.folders = folders

    def __missing__(self, name: str) -> ServerConfig:
        self[name] = ALL_SERVERS[name].config(self.folders)
        return self[name]


@pytest.fixture(scope="session")
def configs(folders: dict[str, str]) -> dict[str, ServerConfig]:
    return Configs(folders)


@pytest.fixture
def server(
    request: pytest.FixtureRequest,
    server_pool: ServerPool,
    configs: dict[str, ServerConfig],
) -> Client:
    """The server that a test is parametrised with, by its name in ``ALL_SERVERS``."""
    (client,) = server_pool.get(configs[request.param])
    return client


@pytest.fixture
def pair(server_pool: ServerPool, configs: dict[str, ServerConfig]) -> list[Client]:
    return server_pool.get(configs["dense_nextn"], configs["dense_plain"])


@pytest.fixture
def nextn(pair: list[Client]) -> Client:
    """The dense model with NEXTN."""
    return pair[0]


@pytest.fixture
def plain(pair: list[Client]) -> Client:
    """The dense model without speculation."""
    return pair[1]


@pytest.fixture(scope="session")
def dense_reference(dense_model: str) -> Reference:
    return Reference(dense_model)


@pytest.fixture(scope="session")
def moe_reference(moe_model: str) -> Reference:
    return Reference(moe_model)


@pytest.fixture
def reference(request: pytest.FixtureRequest) -> Reference:
    """transformers on the model of the server that the test uses."""
    model = ALL_SERVERS[server_name(request.node)].model
    loaded: Reference = request.getfixturevalue(f"{model}_reference")
    return loaded


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a server together, so that none is started twice."""
    order = [*ALL_SERVERS]
    # The first two are alive together; many tests compare them.
    items.sort(key=lambda item: max(1, order.index(server_name(item))))


def server_name(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    name = callspec.params.get("server") if callspec else None
    return name if name in ALL_SERVERS else "dense_nextn"
