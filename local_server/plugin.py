"""Makes a server's processes load a module of ours, by SGLang's own plugin door."""

from __future__ import annotations

import os
from pathlib import Path


def plugin_environment(
    module: Path, folder: Path, variables: dict[str, str], python_path: str = ""
) -> tuple[tuple[str, str], ...]:
    """Return the variables of a server that loads a plugin.

    Args:
        module: a file with a function ``register``, and what it imports beside it.
        folder: gets what makes SGLang find the module, and nothing else.
        variables: what the plugin reads.
        python_path: what else the server finds modules in, before all others.
    """
    name = module.stem
    info = folder / f"{name}-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    entry = f"[sglang.srt.plugins]\n{name} = {name}:register\n"
    (info / "entry_points.txt").write_text(entry)
    here = os.environ.get("PYTHONPATH", "")
    paths = [python_path, str(folder), str(module.parent), here]
    return (
        *variables.items(),
        ("PYTHONPATH", os.pathsep.join(path for path in paths if path)),
    )
