"""Each rank of a CPU gets its own cores while there are enough."""

from __future__ import annotations

import pytest

from sglang.srt.utils.numa_utils import divide_cores


@pytest.mark.parametrize(
    ("nodes", "ranks", "expected"),
    [
        (["0,1"], 2, "0|1"),
        (["0,1,2,3"], 2, "0,1|2,3"),
        (["0,1,2,3", "4,5,6,7"], 4, "0,1|2,3|4,5|6,7"),
        (["0,1,2"], 2, "0|1"),
        (["0"], 2, "0|0"),
        (["0,1"], 4, "0|1|0|1"),
    ],
)
def test_cores_are_divided_evenly(nodes: list[str], ranks: int, expected: str) -> None:
    assert divide_cores(nodes, ranks) == expected
