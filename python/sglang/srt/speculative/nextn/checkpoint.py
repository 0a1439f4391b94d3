"""Where a checkpoint keeps its MTP head: which tensors, in which shards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from sglang.srt.speculative.nextn.safetensors_header import (
    CheckpointError,
    HeadTensor,
    NoSafetensorsError,
    read_header,
)

INDEX_NAME = "model.safetensors.index.json"
_INDEX_SUFFIX = ".safetensors.index.json"


def is_mtp_tensor(name: str) -> bool:
    """Whether `name` belongs to an MTP head that is named as Qwen3.5 names it."""
    return name.startswith("mtp.")


def is_shared_tensor(name: str) -> bool:
    """Whether `name` is a table of the target that an MTP head uses by reference."""
    return name.endswith("embed_tokens.weight") or "lm_head." in name


@dataclass(frozen=True)
class HeadCheckpoint:
    """The part of a checkpoint that an MTP head is built from.

    Attributes:
        root: folder of the shards.
        source: file that says where tensors are: the index, or the only shard.
        tensors: the head's tensors by name.
        shared: the target's `embed_tokens` and `lm_head` tensors by name.
        absent: tensors that the index promises and its shard lacks: name to shard.
        misnamed: names that look like a head's and that nothing would load.
        shards: every shard of the checkpoint.
        missing_shards: shards that the index names and the folder lacks.
        total_bytes: bytes of the whole checkpoint; None when not known.
        warnings: sentences for the user about what is odd and can still be served.
    """

    root: Path
    source: str
    tensors: Mapping[str, HeadTensor]
    shared: Mapping[str, HeadTensor] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    misnamed: tuple[str, ...] = ()
    shards: tuple[str, ...] = ()
    missing_shards: tuple[str, ...] = ()
    total_bytes: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def head_shards(self) -> tuple[str, ...]:
        """The shards that hold the head: the only ones that loading it must open."""
        names = {tensor.shard for tensor in self.tensors.values()}
        return tuple(sorted(names | set(self.absent.values())))

    @property
    def num_bytes(self) -> int | None:
        """Bytes of all the head's tensors; None when a shape is not known."""
        return sum_bytes(self.tensors.values())

    @property
    def has_shapes(self) -> bool:
        """Whether the shards were there to read shapes and dtypes from."""
        return all(tensor.shape is not None for tensor in self.tensors.values())


def sum_bytes(tensors) -> int | None:
    """Bytes of `tensors` together; None when one of them has no known shape."""
    sizes = [tensor.num_bytes for tensor in tensors]
    return None if None in sizes else sum(sizes)


def read_head_checkpoint(
    path: str | Path,
    is_head_tensor: Callable[[str], bool] = is_mtp_tensor,
    *,
    read_shared: bool = False,
) -> HeadCheckpoint:
    """Find the MTP head of the checkpoint at `path` from its index and headers.

    Args:
        path: a checkpoint folder, or a safetensors index file. Beside an index file the
            shards may be absent: names and shard names are known then, shapes are not.
        is_head_tensor: says whether a tensor name belongs to the head.
        read_shared: also open the shards of `embed_tokens` and `lm_head`, for their
            shapes. Without it only shards that hold the head are opened.

    Raises:
        CheckpointError: there is no safetensors checkpoint, or a file that the head
            needs is missing, truncated or not valid.
    """
    path = Path(path)
    if path.is_file() and path.name.endswith(".json"):
        return _read_indexed(path, is_head_tensor, read_shared, shards_required=False)
    if not path.is_dir():
        raise CheckpointError(
            f"{path} is neither a checkpoint folder nor a {INDEX_NAME} file."
        )
    index = _find_index(path)
    if index is not None:
        return _read_indexed(index, is_head_tensor, read_shared, shards_required=True)
    return _read_unindexed(path, is_head_tensor)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`.

    Raises:
        CheckpointError: no such file, not valid JSON, or not an object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist.") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise CheckpointError(
            f"{path} holds a JSON {type(value).__name__}; expected an object."
        )
    return value


def _find_index(folder: Path) -> Path | None:
    preferred = folder / INDEX_NAME
    if preferred.is_file():
        return preferred
    return next(iter(sorted(folder.glob(f"*{_INDEX_SUFFIX}"))), None)


def _read_unindexed(folder: Path, is_head_tensor) -> HeadCheckpoint:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise NoSafetensorsError(
            f"{folder} is no safetensors checkpoint: it has neither {INDEX_NAME} nor a "
            ".safetensors file. Give the folder that holds the weights; other weight "
            "formats must be converted first."
        )
    tensors: dict[str, HeadTensor] = {}
    for file in files:
        tensors |= read_header(file)
    warnings = ()
    if len(files) > 1:
        warnings = (
            f"{folder} has no {INDEX_NAME}: the headers of all {len(files)} "
            "safetensors files were read.",
        )
    return HeadCheckpoint(
        root=folder,
        source=files[0].name if len(files) == 1 else f"{len(files)} safetensors files",
        tensors={n: t for n, t in tensors.items() if is_head_tensor(n)},
        shared={
            name: tensor
            for name, tensor in tensors.items()
            if is_shared_tensor(name) and not is_head_tensor(name)
        },
        misnamed=_find_misnamed(tensors, is_head_tensor),
        shards=tuple(file.name for file in files),
        total_bytes=sum_bytes(tensors.values()),
        warnings=warnings,
    )


def _read_indexed(
    index: Path, is_head_tensor, read_shared: bool, *, shards_required: bool
) -> HeadCheckpoint:
    contents = read_json(index)
    weight_map = _check_weight_map(index, contents)
    root = index.parent
    shards = tuple(sorted(set(weight_map.values())))
    missing = tuple(name for name in shards if not (root / name).is_file())
    head_map = {n: s for n, s in weight_map.items() if is_head_tensor(n)}
    shared_map = {
        name: shard
        for name, shard in weight_map.items()
        if is_shared_tensor(name) and name not in head_map
    }
    if shards_required:
        _require_shards(index, head_map, missing)

    wanted = set(head_map.values()) | (
        set(shared_map.values()) if read_shared else set()
    )
    headers = {name: read_header(root / name) for name in sorted(wanted - set(missing))}
    stray_headers, warnings = _read_stray_headers(root, index.name, set(shards))
    unlisted, notes = _collect_unlisted(
        headers | stray_headers, index.name, weight_map, is_head_tensor
    )
    tensors: dict[str, HeadTensor] = dict(unlisted)
    absent: dict[str, str] = {}
    for name, shard in head_map.items():
        if shard not in headers:
            tensors[name] = HeadTensor(name, shard)
        elif name in headers[shard]:
            tensors[name] = headers[shard][name]
        elif name not in unlisted:
            absent[name] = shard

    return HeadCheckpoint(
        root=root,
        source=index.name,
        tensors=tensors,
        shared={
            name: headers.get(shard, {}).get(name, HeadTensor(name, shard))
            for name, shard in shared_map.items()
        },
        absent=absent,
        misnamed=_find_misnamed(weight_map, is_head_tensor),
        shards=shards,
        missing_shards=missing,
        total_bytes=_total_bytes(contents, root, shards, missing),
        warnings=(*warnings, *notes),
    )


def _check_weight_map(index: Path, contents: dict[str, Any]) -> dict[str, str]:
    weight_map = contents.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(
            f'{index} has no "weight_map": expected an object from tensor to shard.'
        )
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not shard:
            raise CheckpointError(
                f"{index} gives {name} the shard {shard!r}; expected a file name."
            )
        if PurePosixPath(shard).is_absolute() or ".." in PurePosixPath(shard).parts:
            raise CheckpointError(
                f"{index} gives {name} the shard {shard!r}, which lies outside "
                f"{index.parent}; expected a file in that folder."
            )
    return weight_map


def _require_shards(
    index: Path, head_map: Mapping[str, str], missing: tuple[str, ...]
) -> None:
    lost = sorted(set(missing) & set(head_map.values()))
    if lost:
        count = sum(shard in lost for shard in head_map.values())
        raise CheckpointError(
            f"{index} places {count} MTP tensors in {', '.join(lost)}, which "
            f"{index.parent} does not hold. Download the missing shard."
        )


def _read_stray_headers(
    root: Path, index_name: str, indexed: set[str]
) -> tuple[dict[str, dict[str, HeadTensor]], list[str]]:
    """Headers of the files that the index forgot, and a sentence on each unreadable."""
    headers: dict[str, dict[str, HeadTensor]] = {}
    warnings: list[str] = []
    for file in sorted(root.glob("*.safetensors")):
        if file.name in indexed:
            continue
        try:
            headers[file.name] = read_header(file)
        except CheckpointError as error:
            warnings.append(f"{index_name} does not list {file.name}. {error}")
    return headers, warnings


def _collect_unlisted(
    headers: Mapping[str, Mapping[str, HeadTensor]],
    index_name: str,
    weight_map: Mapping[str, str],
    is_head_tensor,
) -> tuple[dict[str, HeadTensor], list[str]]:
    """Head tensors found elsewhere than the index says, and a sentence on each file."""
    unlisted: dict[str, HeadTensor] = {}
    warnings: list[str] = []
    for shard, header in headers.items():
        new = [
            tensor
            for name, tensor in header.items()
            if is_head_tensor(name)
            and name not in unlisted
            and weight_map.get(name) != shard
            and name not in headers.get(weight_map.get(name, ""), {})
        ]
        unlisted |= {tensor.name: tensor for tensor in new}
        if new:
            warnings.append(
                f"{shard} holds {len(new)} MTP tensors that {index_name} does not "
                "place there; they are read from it."
            )
    return unlisted, warnings


def _find_misnamed(names, is_head_tensor) -> tuple[str, ...]:
    return tuple(
        name for name in names if ".mtp." in f".{name}" and not is_head_tensor(name)
    )


def _total_bytes(
    contents: dict[str, Any], root: Path, shards, missing: tuple[str, ...]
) -> int | None:
    if not missing:
        return sum((root / name).stat().st_size for name in shards)
    metadata = contents.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    return int(size) if isinstance(size, (int, float)) else None
