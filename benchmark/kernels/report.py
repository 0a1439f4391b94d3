"""Rows to a table, a CSV file and a plot."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

Row = dict[str, object]


def print_table(rows: Sequence[Row]) -> None:
    if not rows:
        print("nothing to show")
        return
    names = list(rows[0])
    cells = [[_text(row[name]) for name in names] for row in rows]
    widths = [
        max(len(name), *(len(line[i]) for line in cells))
        for i, name in enumerate(names)
    ]
    for line in (names, *cells):
        print("  ".join(t.ljust(w) for t, w in zip(line, widths, strict=True)).rstrip())


def _text(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def write_csv(rows: Sequence[Row], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_plot(
    rows: Sequence[Row], value: str, series: str, title: str, path: Path
) -> None:
    """``value`` over M for each ``series``, one panel for each layer."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys(str(row["layer"]) for row in rows))
    columns = min(len(panels), 4)
    lines = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(4 * columns, 3 * lines), squeeze=False
    )
    for axis, panel in zip(axes.flat, panels, strict=False):
        mine = [row for row in rows if row["layer"] == panel]
        for name in dict.fromkeys(str(row[series]) for row in mine):
            points = [row for row in mine if row[series] == name]
            axis.plot(
                [row["M"] for row in points],
                [row[value] for row in points],
                marker="o",
                label=name,
            )
        axis.set(title=panel, xscale="log", yscale="log", xlabel="M", ylabel=value)
        axis.legend(fontsize="x-small")
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
