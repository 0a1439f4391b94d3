"""Time a GPU function with its weights cold, as they are in a forward pass."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

REPEATS = 20


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call: median over replays, and width of the middle half."""

    median: float
    spread: float


def copies_beyond_cache(weight_bytes: int, cache_bytes: int) -> int:
    """Copies of a weight that together are three times as large as the L2 cache."""
    return max(2, -(-3 * cache_bytes // max(weight_bytes, 1)))


def measure(call: Callable[[int], object], copies: int) -> Timing:
    """Time ``call(copy)`` in a CUDA graph that goes over all copies of its weights.

    Every call finds its weight evicted by those in between. Events enclose the whole
    graph, so their resolution is shared by ``copies`` calls.
    """
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for copy in range(copies):
            call(copy)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for copy in range(copies):
                call(copy)
        times = []
        for _ in range(REPEATS):
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            start.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(start.elapsed_time(end) * 1000 / copies)
    low, median, high = statistics.quantiles(times, n=4)
    return Timing(median, high - low)
