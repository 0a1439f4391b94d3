"""Makes a server's processes load a probe, by SGLang's own plugin door."""

from __future__ import annotations

import os
from pathlib import Path


def probe_environment(
    name: str, folder: Path, variables: dict[str, str], python_path: str = ""
) -> dict[str, str]:
    """Return the variables of a server that loads the probe of that name.

    Args:
        name: a module of this package with a function ``register``.
        folder: gets what makes SGLang find the probe.
        variables: what the probe reads.
        python_path: what else the server finds modules in, before all others.
    """
    info = folder / "path" / f"{name}-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    entry = f"[sglang.srt.plugins]\n{name} = {name}:register\n"
    (info / "entry_points.txt").write_text(entry)
    here = Path(__file__).parent
    paths = [python_path, str(info.parent), str(here), os.environ.get("PYTHONPATH", "")]
    return {
        **variables,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }
