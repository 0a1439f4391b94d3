"""What loading the MTP head opens, reads and keeps: upstream's alias against native.

    python benchmark/serving/head_memory.py [--hidden-size 512] [--dtype bfloat16]

Measured: the real server, started once with each, on a checkpoint made on the spot with
Qwen3.5's vocabulary of 248,320 and otherwise small layers; ``mtp.*`` lies in two of its
five shards. A plugin (``probe.load_probe``) watches the draft's load from the kernel's
side: opens by inotify, bytes read from disk with the shards out of the page cache, and
the high-water mark of memory above what the process had when the load began. KV tokens
are those of the same ``--mem-fraction-static`` with no bound on tokens.

Free memory is told to the server as that of a machine of ``--machine-gib`` on which it
is alone: less its own anonymous memory. Otherwise whatever else runs here would decide
the pools. The tables that native frees are those that the alias holds more when the
pools are sized; on a CPU a table that was allocated and not yet written takes nothing.
The alias is told the draft's path, which is the model's: without it upstream sizes the
pools as if the head had no KV, and what the head then takes is in nobody's account.
A Python process differs by some MiB from start to start, which is allowed for.

Not measured: a GPU, and time. Writes a table and a CSV file to build/benchmark.
"""

from __future__ import annotations

import argparse
import csv
import json
import signal
import sys
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "test" / "models")]

import httpx  # noqa: E402
from probe import load_probe  # noqa: E402
from probe.load_probe import FOLDER_VARIABLE, MACHINE_VARIABLE, RESULT  # noqa: E402
from safetensors import safe_open  # noqa: E402
from tiny_qwen.large_vocabulary import (  # noqa: E402
    VOCABULARY,
    write_large_vocabulary,
)

from fork.alias import alias_tree  # noqa: E402
from local_server import LocalServer, ServerConfig, plugin_environment  # noqa: E402

MIB = 2**20
ITEM_BYTES = {"bfloat16": 2, "float32": 4}
MOST_BYTES_READ = 1.05
PROCESS_BYTES = 4 * MIB


@dataclass(frozen=True)
class Start:
    """One start of a server; bytes are those of the draft's load alone.

    Attributes:
        opened: shards opened at least once.
        peak_bytes: high-water mark of the process above its size before the load.
        kept_bytes: anonymous memory that it has more after the load.
        sizing_bytes: all its anonymous memory when the pools are sized.
        kv_tokens: size of the KV pool.
    """

    server: str
    opened: int
    opens: int
    read_bytes: int
    peak_bytes: int
    kept_bytes: int
    sizing_bytes: int
    kv_tokens: int


@dataclass(frozen=True)
class Checkpoint:
    """What the starts are held against, in the served dtype.

    Attributes:
        head_bytes: of the ``mtp.*`` tensors on disk.
        table_bytes: of one embedding table.
        kv_token_bytes: of one token in the KV pools of the target and of the head.
    """

    shards: int
    head_shards: int
    head_bytes: int
    table_bytes: int
    kv_token_bytes: int

    @classmethod
    def write(cls, folder: Path, hidden_size: int, dtype: str) -> Checkpoint:
        architecture = write_large_vocabulary(folder, hidden_size)
        shards = sorted(folder.glob("*.safetensors"))
        sizes = [head_bytes(shard) for shard in shards]
        layers = architecture.layer_types.count("full_attention") + 1
        heads = architecture.num_key_value_heads * architecture.head_dim
        return cls(
            shards=len(shards),
            head_shards=sum(map(bool, sizes)),
            head_bytes=sum(sizes),
            table_bytes=VOCABULARY * hidden_size * ITEM_BYTES[dtype],
            kv_token_bytes=2 * layers * heads * ITEM_BYTES[dtype],
        )


def main() -> None:
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="large-vocabulary-") as scratch:
        folder = Path(scratch)
        checkpoint = Checkpoint.write(folder, options.hidden_size, options.dtype)
        starts = [start(options, folder, name) for name in ("alias", "native")]
    with (options.out / "head_memory.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Start)])
        writer.writeheader()
        writer.writerows(map(asdict, starts))
    text = table(checkpoint, *starts)
    (options.out / "head_memory.txt").write_text(text + "\n")
    print(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--dtype", choices=ITEM_BYTES, default="bfloat16")
    parser.add_argument("--machine-gib", type=float, default=4.0)
    parser.add_argument("--mem-fraction-static", type=float, default=0.6)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build" / "benchmark")
    return parser.parse_args()


def start(options: argparse.Namespace, checkpoint: Path, name: str) -> Start:
    """Start a server, ask it for the size of its pool, and stop it."""
    folder = options.out / f"load-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    variables = {
        FOLDER_VARIABLE: str(folder),
        MACHINE_VARIABLE: str(int(options.machine_gib * 2**30)),
    }
    is_alias = name == "alias"
    tree = str(alias_tree()) if is_alias else ""
    draft = ("--speculative-draft-model-path", str(checkpoint)) if is_alias else ()
    config = ServerConfig(
        str(checkpoint),
        nextn=True,
        dtype=options.dtype,
        max_total_tokens=None,
        max_mamba_cache_size=8,
        max_running_requests=4,
        arguments=(
            "--skip-server-warmup",
            "--sleep-on-idle",
            *("--mem-fraction-static", str(options.mem_fraction_static)),
            *draft,
        ),
        environment=plugin_environment(
            Path(load_probe.__file__), folder / "path", variables, tree
        ),
    )
    (folder / RESULT).unlink(missing_ok=True)
    with LocalServer(config, folder / "server.log") as server:
        server.wait()
        url = f"{server.url}/server_info"
        info = httpx.get(url, trust_env=False, timeout=60).raise_for_status().json()
    noted = json.loads((folder / RESULT).read_text())
    opens = {
        file: count
        for file, count in noted["opens"].items()
        if file.endswith(".safetensors")
    }
    return Start(
        server=name,
        opened=len(opens),
        opens=sum(opens.values()),
        read_bytes=noted["read_bytes"],
        peak_bytes=noted["peak_bytes"],
        kept_bytes=noted["kept_bytes"],
        sizing_bytes=noted["sizing_bytes"],
        kv_tokens=info["max_total_num_tokens"],
    )


def head_bytes(shard: Path) -> int:
    """Bytes of the ``mtp.*`` tensors in a file."""
    with safe_open(shard, framework="pt") as file:
        names = [name for name in list(file.keys()) if name.startswith("mtp.")]
        tensors = [file.get_tensor(name) for name in names]
    return sum(tensor.nbytes for tensor in tensors)


def table(checkpoint: Checkpoint, alias: Start, native: Start) -> str:
    """The figures beside each other, then each requirement with what is required."""
    most_read = int(MOST_BYTES_READ * checkpoint.head_bytes)
    more_held = alias.sizing_bytes - native.sizing_bytes
    tables = round(more_held / checkpoint.table_bytes)
    freed = tables * checkpoint.table_bytes // checkpoint.kv_token_bytes
    allowed = PROCESS_BYTES // checkpoint.kv_token_bytes
    rows = [
        ("shards opened", alias.opened, native.opened),
        ("opens of shards", alias.opens, native.opens),
        ("read from disk, MiB", mib(alias.read_bytes), mib(native.read_bytes)),
        ("peak above the start, MiB", mib(alias.peak_bytes), mib(native.peak_bytes)),
        ("kept after the load, MiB", mib(alias.kept_bytes), mib(native.kept_bytes)),
        ("held at sizing, MiB", mib(alias.sizing_bytes), mib(native.sizing_bytes)),
        ("KV tokens", f"{alias.kv_tokens:,}", f"{native.kv_tokens:,}"),
    ]
    saved = alias.peak_bytes - native.peak_bytes
    gained = native.kv_tokens - alias.kv_tokens
    checks = [
        (
            f"shards opened: the {checkpoint.head_shards} with mtp.*",
            native.opened == checkpoint.head_shards,
        ),
        (
            f"read {mib(native.read_bytes)} MiB, at most {mib(most_read)}",
            native.read_bytes <= most_read,
        ),
        (
            f"peak lower by {mib(saved)} MiB, at least {mib(checkpoint.table_bytes)}",
            saved >= checkpoint.table_bytes,
        ),
        (
            f"{gained:,} more KV tokens; {tables} freed table(s) are {freed:,}, and "
            f"the process may differ by {allowed:,}",
            gained >= freed - allowed and tables > 0,
        ),
    ]
    lines = [
        f"head {mib(checkpoint.head_bytes)} MiB in {checkpoint.head_shards} of "
        f"{checkpoint.shards} shards; one table {mib(checkpoint.table_bytes)} MiB",
        f"{'draft load':28}{'alias':>14}{'native':>14}",
        *(f"{label:28}{its!s:>14}{mine!s:>14}" for label, its, mine in rows),
        *(f"{'met' if met else 'NOT MET'}: {label}" for label, met in checks),
    ]
    return "\n".join(lines)


def mib(count: int) -> str:
    return f"{count / MIB:.1f}"


if __name__ == "__main__":
    main()
