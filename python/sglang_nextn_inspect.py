"""``sglang-nextn-inspect``: the inspect command without what ``import sglang`` costs.

The command reads files and needs none of the package's own initialisation, which
imports PyTorch and takes seconds.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec


def main() -> int:
    """Run ``sglang.srt.speculative.nextn.inspect`` and return its exit status."""
    spec = find_spec("sglang")
    if spec is None:
        raise ModuleNotFoundError("sglang is not installed")
    # The package, not initialised: its submodules are found through its path.
    sys.modules.setdefault("sglang", module_from_spec(spec))
    from sglang.srt.speculative.nextn.inspect import main as inspect

    return inspect()


if __name__ == "__main__":
    sys.exit(main())
