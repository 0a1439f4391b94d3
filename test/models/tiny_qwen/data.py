"""The text: the Python standard library's own source code."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from tiny_qwen.tokenizer import END_OF_TEXT_ID

HELD_OUT_MODULES = frozenset(
    (
        "argparse",
        "configparser",
        "dataclasses",
        "heapq",
        "queue",
        "sched",
        "shelve",
        "socketserver",
        "statistics",
        "tempfile",
        "textwrap",
        "zipfile",
    )
)
# Tests, tables and generated text: they are no code that anybody would complete.
SKIPPED_FOLDERS = frozenset(
    (
        "__pycache__",
        "encodings",
        "idle_test",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
    )
)
MIN_BYTES = 400


@dataclass(frozen=True)
class Sources:
    train: list[str]
    held_out: list[str]


def read_sources(root: Path) -> Sources:
    """Every module under `root`, apart from tests and tables, split by module name."""
    sources = Sources([], [])
    for file in sorted(root.rglob("*.py")):
        if SKIPPED_FOLDERS & set(file.relative_to(root).parts[:-1]):
            continue
        if file.stat().st_size < MIN_BYTES:
            continue
        try:
            text = file.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        held_out = file.stem in HELD_OUT_MODULES
        (sources.held_out if held_out else sources.train).append(text)
    return sources


def tokenize(tokenizer: Tokenizer, texts: Iterable[str]) -> Tensor:
    """All texts as one row of token ids, each text ended by END_OF_TEXT_ID."""
    encoded = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return torch.tensor(
        [token for text in encoded for token in (*text.ids, END_OF_TEXT_ID)]
    )


def random_rows(
    tokens: Tensor, rows: int, length: int, generator: torch.Generator
) -> Tensor:
    """[rows, length] pieces of `tokens` [n] from random places."""
    starts = torch.randint(len(tokens) - length, (rows, 1), generator=generator)
    return tokens[starts + torch.arange(length)]


def spaced_rows(tokens: Tensor, rows: int, length: int) -> Tensor:
    """At most [rows, length] pieces of `tokens` [n], evenly spaced, no overlap."""
    pieces = tokens[: len(tokens) // length * length].view(-1, length)
    chosen = torch.linspace(0, len(pieces) - 1, min(rows, len(pieces))).long()
    return pieces[chosen]
