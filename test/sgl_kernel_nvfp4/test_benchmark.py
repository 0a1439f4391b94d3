"""`benchmark/kernels/nvfp4.py` prints its table and plot without a GPU."""

import csv
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmark" / "kernels" / "nvfp4.py"


def benchmark(*arguments):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )


def test_static_mode_writes_a_table_a_csv_and_a_plot(tmp_path):
    table, plot = tmp_path / "t.csv", tmp_path / "p.png"
    result = benchmark(
        "--static",
        "--model",
        "35B-A3B",
        "--m",
        "1",
        "--m",
        "16",
        "--tp",
        "8",
        "--csv",
        str(table),
        "--plot",
        str(plot),
    )
    assert result.returncode == 0, result.stderr
    assert "Not measured" in result.stdout
    rows = list(csv.DictReader(table.open()))
    assert {(row["layer"], row["M"]) for row in rows} == {
        (f"35B-A3B {layer} TP8", m) for layer in ("w13", "w2") for m in ("1", "16")
    }
    for row in rows:
        assert int(row["spills"]) == 0
        assert float(row["modelled us"]) >= float(row["memory us"]) > 0
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_measuring_without_a_gpu_points_to_the_static_mode():
    result = benchmark()
    assert result.returncode == 2
    assert "--static" in result.stderr
