"""The build backend that pyproject.toml names; the work is in the package ``fork``.

``python setup.py [DIR]`` builds the fork wheel of the running Python into DIR (dist/).
"""

import sys
from pathlib import Path

from fork.backend import build_editable, build_sdist, build_wheel

__all__ = ["build_editable", "build_sdist", "build_wheel"]

if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    directory.mkdir(parents=True, exist_ok=True)
    print(directory / build_wheel(str(directory)))
