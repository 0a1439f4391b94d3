"""The index of a sharded checkpoint: which file holds which tensor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sglang.srt.speculative.nextn.safetensors_header import CheckpointError

INDEX_NAME = "model.safetensors.index.json"
_INDEX_SUFFIX = ".safetensors.index.json"


@dataclass(frozen=True)
class WeightIndex:
    """An index file as read: tensor name to shard name."""

    weight_map: Mapping[str, str]

    @property
    def shards(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.weight_map.values())))


def find_index(folder: Path) -> Path | None:
    """The index file in `folder`: the usual name, else the first of its kind."""
    preferred = folder / INDEX_NAME
    if preferred.is_file():
        return preferred
    return next(iter(sorted(folder.glob(f"*{_INDEX_SUFFIX}"))), None)


def read_weight_index(path: Path) -> WeightIndex:
    """Read and check the index file `path`.

    Raises:
        CheckpointError: no valid JSON, no weight map, or a shard outside the folder.
    """
    contents = read_json(path)
    weight_map = contents.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(
            f'{path} has no "weight_map": expected an object from tensor to shard.'
        )
    checked: set[str] = set()
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or shard not in checked:
            _check_shard_name(path, name, shard)
            checked.add(shard)
    return WeightIndex(weight_map)


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


def _check_shard_name(index: Path, name: str, shard: Any) -> None:
    if not isinstance(shard, str) or not shard:
        raise CheckpointError(
            f"{index} gives {name} the shard {shard!r}; expected a file name."
        )
    if PurePosixPath(shard).is_absolute() or ".." in PurePosixPath(shard).parts:
        raise CheckpointError(
            f"{index} gives {name} the shard {shard!r}, which lies outside "
            f"{index.parent}; expected a file in that folder."
        )
