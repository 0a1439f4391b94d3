"""Paths of the NVFP4 kernel tests, and a report of the errors that they found."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT / "sgl-kernel", ROOT / "test"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def pytest_terminal_summary(terminalreporter):
    """The worst error of each sweep, relative to the sum of the sizes of the terms."""
    worst = {
        report.nodeid.partition("[")[2].rstrip("]"): value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "worst_error"
    }
    if worst:
        terminalreporter.section("worst relative error over every M")
        for name, value in worst.items():
            terminalreporter.line(f"{value:8.1e}  {name}")
