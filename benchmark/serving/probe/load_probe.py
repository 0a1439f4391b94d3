"""A plugin of SGLang that watches the load of the draft from the kernel's side.

What was opened comes from inotify on the checkpoint's folder, what was read from
``/proc/self/io`` after the files left the page cache, and the peak of memory from the
kernel's own high-water mark, set back before the load.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "LOAD_PROBE_DIR"
MACHINE_VARIABLE = "LOAD_PROBE_MACHINE_BYTES"
RESULT = "draft_load.json"
_IN_OPEN, _IN_NONBLOCK = 0x20, os.O_NONBLOCK
_EVENT = struct.Struct("iIII")


def register() -> None:
    """Called by SGLang in each of its processes."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    result = Path(os.environ[FOLDER_VARIABLE]) / RESULT
    machine = int(os.environ[MACHINE_VARIABLE])
    noted: dict[str, Any] = {}

    def load(original: Callable[..., Any], runner: Any, *args: Any) -> Any:
        if not runner.is_draft_worker:
            return original(runner, *args)
        watched = WatchedLoad(Path(runner.model_config.model_path))
        output = original(runner, *args)
        noted.update(watched.finish())
        return output

    def free_memory() -> int:
        """The first to ask after the draft's load is who sizes the pools."""
        held = own_bytes()
        if noted and "sizing_bytes" not in noted:
            noted["sizing_bytes"] = held
            result.write_text(json.dumps(noted))
        return machine - held

    HookRegistry.register(
        "sglang.srt.model_executor.model_runner.ModelRunner.load_model",
        load,
        HookType.AROUND,
    )
    HookRegistry.register(
        "sglang.srt.utils.common.get_free_cpu_memory",
        free_memory,
        HookType.REPLACE,
    )


class WatchedLoad:
    """One load, from the constructor to ``finish``."""

    def __init__(self, checkpoint: Path):
        for shard in checkpoint.glob("*.safetensors"):
            _drop_from_page_cache(shard)
        self.inotify = _watch_opens(checkpoint)
        Path("/proc/self/clear_refs").write_text("5")
        self.anonymous = _status("RssAnon")
        self.resident = _status("VmRSS")
        self.read_bytes = _read_bytes()
        self.started = time.perf_counter()

    def finish(self) -> dict[str, Any]:
        """Return opens by file, and bytes: read, peak and kept beyond the start's."""
        seconds = time.perf_counter() - self.started
        return {
            "opens": _opens(self.inotify),
            "read_bytes": _read_bytes() - self.read_bytes,
            "peak_bytes": _status("VmHWM") - self.resident,
            "kept_bytes": _status("RssAnon") - self.anonymous,
            "seconds": seconds,
        }


def own_bytes() -> int:
    """Memory of this process that no other has: what its load takes from a machine."""
    return _status("RssAnon") + _status("RssShmem")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def _read_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def _drop_from_page_cache(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def _watch_opens(folder: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(_IN_NONBLOCK)
    if libc.inotify_add_watch(descriptor, bytes(folder), _IN_OPEN) < 0:
        raise OSError(ctypes.get_errno(), f"cannot watch {folder}")
    return int(descriptor)


def _opens(descriptor: int) -> dict[str, int]:
    """How often each file was opened; closes the watch."""
    names: Counter[str] = Counter()
    try:
        while data := os.read(descriptor, 1 << 16):
            offset = 0
            while offset < len(data):
                *_, length = _EVENT.unpack_from(data, offset)
                start = offset + _EVENT.size
                names[data[start : start + length].rstrip(b"\0").decode()] += 1
                offset = start + length
    except BlockingIOError:
        pass
    os.close(descriptor)
    return dict(names)
