"""A request that cannot be served is refused, and the server lives on."""

from __future__ import annotations

from typing import Any

import pytest

from harness.client import Client
from harness.servers import SERVERS

GREEDY = {"temperature": 0, "max_new_tokens": 8}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "no tokens": ("/generate", {"input_ids": [], "sampling_params": GREEDY}),
    "empty text": ("/generate", {"text": "", "sampling_params": GREEDY}),
    "one empty prompt of two": (
        "/generate",
        {"input_ids": [[5, 6, 7], []], "sampling_params": GREEDY},
    ),
    "empty completion": ("/v1/completions", {"prompt": "", "max_tokens": 8}),
    "bad regex": (
        "/generate",
        {"text": "def", "sampling_params": {**GREEDY, "regex": "(["}},
    ),
    "bad temperature": (
        "/generate",
        {"text": "def", "sampling_params": {"temperature": -1}},
    ),
    "token beyond the vocabulary": (
        "/generate",
        {"input_ids": [5, 6, 1024], "sampling_params": GREEDY},
    ),
    "negative token": ("/generate", {"input_ids": [5, -1], "sampling_params": GREEDY}),
    "a row beyond the vocabulary": (
        "/generate",
        {"input_ids": [[5, 6], [7, 1024]], "sampling_params": GREEDY},
    ),
    "completion beyond the vocabulary": (
        "/v1/completions",
        {"prompt": [5, 999999], "max_tokens": 8},
    ),
    "half a token": ("/generate", {"input_ids": [5, 1.5], "sampling_params": GREEDY}),
    "too long": ("/generate", {"input_ids": [5] * 5000, "sampling_params": GREEDY}),
}

dense = pytest.mark.parametrize(
    "server", [name for name in SERVERS if name.startswith("dense")], indirect=True
)


@dense
@pytest.mark.parametrize("name", BODIES)
def test_is_a_clients_error(server: Client, name: str) -> None:
    before = server.generate("def main(", GREEDY)
    path, body = BODIES[name]
    if path.startswith("/v1"):
        body = {"model": server.model, **body}
    response = server.post(path, body)
    assert response.status_code == 400, response.text
    assert len(response.text) > 20
    if "empty" in name or name == "no tokens":
        assert "empty" in response.text or "token" in response.text
    assert server.generate("def main(", GREEDY).token_ids == before.token_ids
