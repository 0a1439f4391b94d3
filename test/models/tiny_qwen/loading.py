"""Load a checkpoint folder into the float32 model, for evaluation."""

from pathlib import Path

import torch
from torch import Tensor

from tiny_qwen.architecture import Architecture
from tiny_qwen.checkpoint import Checkpoint
from tiny_qwen.model import TinyQwen

EMBEDDING = "model.language_model.embed_tokens.weight"


def load_model(folder: Path) -> TinyQwen:
    """Dense or mixture of experts, tied or not, experts packed or one by one.

    Raises:
        RuntimeError: tensors are missing, left over or wrongly shaped.
    """
    checkpoint = Checkpoint.read(folder)
    tensors = {
        name: tensor.float()
        for name, tensor in checkpoint.tensors.items()
        if not name.startswith("model.visual.")
    }
    if checkpoint.text_config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = tensors[EMBEDDING]
    pack_experts(tensors)
    model = TinyQwen(Architecture.from_text_config(checkpoint.text_config))
    model.load_state_dict(tensors)
    return model.requires_grad_(False)


def pack_experts(tensors: dict[str, Tensor]) -> None:
    """Turn `experts.E.gate_proj.weight` and so on into packed tensors, in place."""
    first = "experts.0.gate_proj.weight"
    for name in [name for name in tensors if name.endswith(first)]:
        experts = name.removesuffix(first) + "experts."
        gate_up: list[Tensor] = []
        down: list[Tensor] = []
        while f"{experts}{len(down)}.gate_proj.weight" in tensors:
            prefix = f"{experts}{len(down)}."
            gate, up, out = (
                tensors.pop(f"{prefix}{part}_proj.weight")
                for part in ("gate", "up", "down")
            )
            gate_up.append(torch.cat([gate, up]))
            down.append(out)
        tensors[f"{experts}gate_up_proj"] = torch.stack(gate_up)
        tensors[f"{experts}down_proj"] = torch.stack(down)
