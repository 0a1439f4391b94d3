"""What goes upstream passes upstream's pre-commit hooks, configured as there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fork.pin import REPOSITORY

FOLDERS = ("python/sglang", "test/registered")
HOOKS = {
    "black": ("black", "--check", "--quiet"),
    "isort": (
        *("isort", "--check", "--quiet", "--profile", "black"),
        *("--project", "sglang", "--settings-path", "/dev/null"),
    ),
    "ruff": ("ruff", "check", "--isolated", "--quiet", "--select", "F401,F821"),
    "codespell": ("codespell_lib", "--ignore-words-list", "cann,thi,makro,wil,rouge"),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_finds_nothing_in_the_files_that_go_upstream(hook: str) -> None:
    module, *arguments = HOOKS[hook]
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments, *FOLDERS],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_finds_what_it_is_there_for(hook: str, tmp_path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text('import torch\nimport os\nx = {  "word": "recieve" }\nprint(y)\n')
    module, *arguments = HOOKS[hook]
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments, str(sample)],
        capture_output=True,
        check=False,
    )
    assert done.returncode != 0
