"""Where a checkpoint keeps its MTP head: which tensors, in which shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sglang.srt.speculative.nextn.safetensors_header import (
    CheckpointError,
    HeadTensor,
    NoSafetensorsError,
    read_header,
)
from sglang.srt.speculative.nextn.weight_index import (
    INDEX_NAME,
    find_index,
    read_weight_index,
)

TensorTest = Callable[[str], bool]


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
        misplaced: of those, where else one was seen: name to shard.
        misnamed: names that look like a head's and that nothing would load.
        shards: every shard that the index names or the head lies in.
        missing_shards: shards that the index names and the folder lacks.
        warnings: sentences for the user about what is odd and can still be served.
    """

    root: Path
    source: str
    tensors: Mapping[str, HeadTensor]
    shared: Mapping[str, HeadTensor] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    misplaced: Mapping[str, str] = field(default_factory=dict)
    misnamed: tuple[str, ...] = ()
    shards: tuple[str, ...] = ()
    missing_shards: tuple[str, ...] = ()
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


def sum_bytes(tensors: Iterable[HeadTensor]) -> int | None:
    """Bytes of `tensors` together; None when one of them has no known shape."""
    sizes = [tensor.num_bytes for tensor in tensors]
    return None if None in sizes else sum(size or 0 for size in sizes)


def read_head_checkpoint(
    path: str | Path,
    is_head_tensor: TensorTest = is_mtp_tensor,
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
        kind = NoSafetensorsError if path.is_file() else CheckpointError
        raise kind(f"{path} is neither a checkpoint folder nor a {INDEX_NAME} file.")
    index = find_index(path)
    if index is not None:
        return _read_indexed(index, is_head_tensor, read_shared, shards_required=True)
    return _read_unindexed(path, is_head_tensor)


def _read_unindexed(folder: Path, is_head_tensor: TensorTest) -> HeadCheckpoint:
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
    warnings: tuple[str, ...] = ()
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
        warnings=warnings,
    )


def _read_indexed(
    index: Path,
    is_head_tensor: TensorTest,
    read_shared: bool,
    *,
    shards_required: bool,
) -> HeadCheckpoint:
    weight_index = read_weight_index(index)
    weight_map, shards = weight_index.weight_map, weight_index.shards
    root = index.parent
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
        else:
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
        misplaced={
            name: shard
            for shard, header in (headers | stray_headers).items()
            for name in absent.keys() & header.keys()
        },
        misnamed=_find_misnamed(weight_map, is_head_tensor),
        shards=tuple(sorted({*shards, *(t.shard for t in unlisted.values())})),
        missing_shards=missing,
        warnings=(*warnings, *notes),
    )


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
    is_head_tensor: TensorTest,
) -> tuple[dict[str, HeadTensor], list[str]]:
    """Head tensors that the index does not list, and a sentence on each file."""
    unlisted: dict[str, HeadTensor] = {}
    warnings: list[str] = []
    for shard, header in headers.items():
        new = {
            name: tensor
            for name, tensor in header.items()
            if is_head_tensor(name) and name not in weight_map and name not in unlisted
        }
        unlisted |= new
        if new:
            warnings.append(
                f"{shard} holds {len(new)} MTP tensors that {index_name} does not "
                "list; they are read from it."
            )
    return unlisted, warnings


def _find_misnamed(names: Iterable[str], is_head_tensor: TensorTest) -> tuple[str, ...]:
    return tuple(
        name for name in names if ".mtp." in f".{name}" and not is_head_tensor(name)
    )
