"""``sglang:remap_info``: what was asked and what runs, as a Prometheus info metric."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from sglang.srt.arg_groups.overrides import resolution_result
from sglang.srt.arg_groups.remap.record import Remap, plain

_LABELS = ("model_name", "setting", "asked", "effective", "rule")


def export_remaps(server_args: Any, remaps: Iterable[Remap]) -> None:
    """Set one sample of value 1 for each remap, if metrics are on."""
    if not resolution_result(server_args, "enable_metrics"):
        return
    for remap in remaps:
        _gauge().labels(
            model_name=resolution_result(server_args, "served_model_name"),
            setting=remap.setting,
            asked=plain(remap.asked),
            effective=plain(remap.effective),
            rule=remap.rule,
        ).set(1)


@functools.cache
def _gauge() -> Any:
    # Imported after the launcher has set PROMETHEUS_MULTIPROC_DIR. Its Info metric
    # does not exist with several processes; a gauge that is 1 is the usual stand-in.
    from prometheus_client import Gauge

    return Gauge(
        name="sglang:remap_info",
        documentation="A setting that runs with another value than was asked for.",
        labelnames=_LABELS,
        multiprocess_mode="mostrecent",
    )
