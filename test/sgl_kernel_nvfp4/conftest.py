"""Paths of the NVFP4 kernel tests."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT / "sgl-kernel", ROOT / "test"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
