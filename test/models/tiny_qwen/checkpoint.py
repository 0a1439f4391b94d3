"""A checkpoint folder in memory: read it, change it, write it in any layout."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"


@dataclass
class Checkpoint:
    """config.json and every tensor of a folder, under their names on disk.

    `companions` are the other files (tokenizer, chat template, processors); they are
    copied unchanged when the checkpoint is written.
    """

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    companions: tuple[Path, ...] = ()

    @property
    def text_config(self) -> dict[str, Any]:
        # A model without a wrapper has its fields at the top.
        return self.config.get("text_config", self.config)

    def names(self, prefix: str) -> list[str]:
        return [name for name in self.tensors if name.startswith(prefix)]

    @classmethod
    def read(cls, folder: Path) -> "Checkpoint":
        """Read a folder, sharded or not.

        Raises:
            FileNotFoundError: there is no config.json.
            KeyError: two files hold the same tensor.
        """
        tensors: dict[str, Tensor] = {}
        for file in sorted(folder.glob("*.safetensors")):
            for name, tensor in load_file(file).items():
                if name in tensors:
                    raise KeyError(f"{file} holds {name}, and so does another file")
                tensors[name] = tensor
        companions = tuple(
            file
            for file in sorted(folder.iterdir())
            if file.is_file()
            and file.suffix != ".safetensors"
            and file.name not in (INDEX_FILE, "config.json")
        )
        config = json.loads((folder / "config.json").read_text("utf-8"))
        return cls(config, tensors, companions)

    def write(self, out: Path, file_of: dict[str, str] | None = None) -> None:
        """Write the folder `out`, which may exist and must hold no weights.

        Args:
            file_of: the file of each tensor by name, which also makes an index; None
                puts everything in one file without an index.

        Raises:
            FileExistsError: `out` already holds weights.
        """
        out.mkdir(parents=True, exist_ok=True)
        if stale := sorted(out.glob("*.safetensors*")):
            raise FileExistsError(f"{stale[0]} exists; give an empty folder")
        write_json(out / "config.json", self.config)
        for companion in self.companions:
            shutil.copyfile(companion, out / companion.name)

        files = file_of or dict.fromkeys(self.tensors, SINGLE_FILE)
        for file in sorted(set(files.values())):
            content = {
                name: self.tensors[name].contiguous()
                for name in self.tensors
                if files[name] == file
            }
            save_file(content, out / file, metadata={"format": "pt"})
        if file_of is not None:
            total = sum(tensor.nbytes for tensor in self.tensors.values())
            write_index(out, {name: file_of[name] for name in self.tensors}, total)


def shard_name(number: int, count: int) -> str:
    """The file name of shard `number`, counted from 1."""
    return f"model-{number:05d}-of-{count:05d}.safetensors"


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def write_index(out: Path, file_of: dict[str, str], total_size: int) -> None:
    """Write the index that names the file of each tensor; `total_size` in bytes."""
    index = {"metadata": {"total_size": total_size}, "weight_map": file_of}
    write_json(out / INDEX_FILE, index)


def read_index(folder: Path) -> dict[str, Any]:
    return json.loads((folder / INDEX_FILE).read_text("utf-8"))
