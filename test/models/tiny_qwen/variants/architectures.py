"""Models of other shapes, made from the dense one so that their output has meaning."""

from pathlib import Path

import torch
from torch import Tensor

from tiny_qwen.checkpoint import Checkpoint
from tiny_qwen.variants.layouts import spread
from tiny_qwen.variants.registry import valid

NUM_EXPERTS = 8
NUM_EXPERTS_PER_TOKEN = 2
EXPERT_NOISE = 0.05
MTP_LAYER_NOISE = 0.01


@valid()
def moe(source: Path, out: Path) -> None:
    """Mixture of experts; the trunk's experts are packed, the head's are one by one."""
    checkpoint = upcycle(Checkpoint.read(source))
    unpack_experts(checkpoint, "mtp.")
    checkpoint.write(out, spread(checkpoint, trunk_shards=2, mtp_shards=1))


@valid(twin="moe")
def moe_packed_mtp(source: Path, out: Path) -> None:
    """The same mixture of experts with the head's experts packed too."""
    checkpoint = upcycle(Checkpoint.read(source))
    checkpoint.write(out, spread(checkpoint, trunk_shards=2, mtp_shards=1))


@valid(twin="moe")
def moe_per_expert(source: Path, out: Path) -> None:
    """The same mixture of experts with every expert on its own, trunk and head."""
    checkpoint = upcycle(Checkpoint.read(source))
    unpack_experts(checkpoint, "")
    checkpoint.write(out, spread(checkpoint, trunk_shards=2, mtp_shards=1))


@valid(twin="dense")
def text_only(source: Path, out: Path) -> None:
    """The language model by itself, without a wrapper and without a vision tower."""
    checkpoint = text_without_vision(Checkpoint.read(source), "Qwen3_5ForCausalLM")
    checkpoint.write(out, spread(checkpoint, trunk_shards=1, mtp_shards=1))


@valid(twin="moe")
def moe_text_only(source: Path, out: Path) -> None:
    """The mixture of experts by itself, likewise."""
    checkpoint = upcycle(Checkpoint.read(source))
    checkpoint = text_without_vision(checkpoint, "Qwen3_5MoeForCausalLM")
    checkpoint.write(out, spread(checkpoint, trunk_shards=1, mtp_shards=1))


@valid(twin="tied_embeddings_written_twice")
def tied_embeddings(source: Path, out: Path) -> None:
    """`lm_head` is `embed_tokens`; the text is poor, as training did not tie them."""
    checkpoint = Checkpoint.read(source)
    del checkpoint.tensors["lm_head.weight"]
    checkpoint.config["tie_word_embeddings"] = True
    checkpoint.text_config["tie_word_embeddings"] = True
    checkpoint.write(out, spread(checkpoint, trunk_shards=1, mtp_shards=1))


@valid(twin="tied_embeddings")
def tied_embeddings_written_twice(source: Path, out: Path) -> None:
    """What `tied_embeddings` computes, as an untied model with two equal tables."""
    checkpoint = Checkpoint.read(source)
    embed = checkpoint.tensors["model.language_model.embed_tokens.weight"]
    checkpoint.tensors["lm_head.weight"] = embed.clone()
    checkpoint.write(out, spread(checkpoint, trunk_shards=1, mtp_shards=1))


@valid()
def two_mtp_layers(source: Path, out: Path) -> None:
    """Two MTP layers; the second is the first with 1 % noise, so mixing them shows."""
    checkpoint = Checkpoint.read(source)
    generator = torch.Generator().manual_seed(0)
    for name in checkpoint.names("mtp.layers.0."):
        second = perturb(checkpoint.tensors[name], MTP_LAYER_NOISE, generator)
        checkpoint.tensors[name.replace("layers.0.", "layers.1.")] = second
    checkpoint.text_config["mtp_num_hidden_layers"] = 2
    checkpoint.write(out, spread(checkpoint, trunk_shards=1, mtp_shards=2))


def upcycle(checkpoint: Checkpoint, noise: float = EXPERT_NOISE) -> Checkpoint:
    """Turn every dense MLP into experts, a router and a shared expert, in place.

    Half of the dense MLP's neurons become the shared expert. The other half becomes
    the base of all routed experts, each with relative noise of its own, so that a wrong
    route changes the logits. With `noise` 0 the function is that of the dense model:
    routing weights sum to one, and the shared expert's gate is sigmoid(0) = 1/2 against
    a doubled `down_proj`.

    Layout, as published: `mlp.gate.weight` [experts, hidden],
    `mlp.experts.gate_up_proj` [experts, 2 * intermediate, hidden],
    `mlp.experts.down_proj` [experts, hidden, intermediate],
    `mlp.shared_expert.{gate,up,down}_proj.weight`, `mlp.shared_expert_gate.weight`
    [1, hidden].
    """
    generator = torch.Generator().manual_seed(0)
    half = checkpoint.text_config.pop("intermediate_size") // 2
    suffix = "mlp.gate_proj.weight"
    for name in [name for name in checkpoint.tensors if name.endswith(suffix)]:
        upcycle_mlp(
            checkpoint.tensors, name.removesuffix(suffix), half, noise, generator
        )

    checkpoint.config["model_type"] = "qwen3_5_moe"
    checkpoint.config["architectures"] = ["Qwen3_5MoeForConditionalGeneration"]
    checkpoint.config["vision_config"]["model_type"] = "qwen3_5_moe"
    checkpoint.text_config.update(
        model_type="qwen3_5_moe_text",
        num_experts=NUM_EXPERTS,
        num_experts_per_tok=NUM_EXPERTS_PER_TOKEN,
        moe_intermediate_size=half,
        shared_expert_intermediate_size=half,
    )
    return checkpoint


def upcycle_mlp(
    tensors: dict[str, Tensor],
    layer: str,
    half: int,
    noise: float,
    generator: torch.Generator,
) -> None:
    """Replace the dense MLP of one layer; `half` is the experts' intermediate size."""
    gate = tensors.pop(f"{layer}mlp.gate_proj.weight")
    up = tensors.pop(f"{layer}mlp.up_proj.weight")
    down = tensors.pop(f"{layer}mlp.down_proj.weight")
    hidden = gate.shape[1]
    experts = [
        tuple(
            perturb(base, noise, generator)
            for base in (gate[half:], up[half:], down[:, half:])
        )
        for _ in range(NUM_EXPERTS)
    ]
    router = torch.randn(NUM_EXPERTS, hidden, generator=generator) * hidden**-0.5
    mlp = f"{layer}mlp."
    tensors[f"{mlp}gate.weight"] = router.to(gate.dtype)
    tensors[f"{mlp}experts.gate_up_proj"] = torch.stack(
        [torch.cat([expert_gate, expert_up]) for expert_gate, expert_up, _ in experts]
    )
    tensors[f"{mlp}experts.down_proj"] = torch.stack(
        [expert_down for _, _, expert_down in experts]
    )
    tensors[f"{mlp}shared_expert.gate_proj.weight"] = gate[:half]
    tensors[f"{mlp}shared_expert.up_proj.weight"] = up[:half]
    tensors[f"{mlp}shared_expert.down_proj.weight"] = down[:, :half] * 2
    tensors[f"{mlp}shared_expert_gate.weight"] = torch.zeros(
        1, hidden, dtype=gate.dtype
    )


def unpack_experts(checkpoint: Checkpoint, prefix: str) -> None:
    """Store the packed experts under `prefix` one by one.

    `experts.gate_up_proj` [experts, 2 * intermediate, hidden] becomes
    `experts.E.gate_proj.weight` and `experts.E.up_proj.weight`, and so on.
    """
    suffix = "experts.gate_up_proj"
    for name in [n for n in checkpoint.names(prefix) if n.endswith(suffix)]:
        experts = name.removesuffix("gate_up_proj")
        gate_up = checkpoint.tensors.pop(name)
        down = checkpoint.tensors.pop(f"{experts}down_proj")
        for expert in range(gate_up.shape[0]):
            gate, up = gate_up[expert].chunk(2)
            parts = {"gate_proj": gate, "up_proj": up, "down_proj": down[expert]}
            for part, tensor in parts.items():
                checkpoint.tensors[f"{experts}{expert}.{part}.weight"] = tensor


def perturb(tensor: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """`tensor` with Gaussian noise of `noise` times its own standard deviation."""
    values = tensor.float()
    scale = noise * values.std(correction=0)
    return (values + scale * torch.randn(values.shape, generator=generator)).to(
        tensor.dtype
    )


def text_without_vision(checkpoint: Checkpoint, architecture: str) -> Checkpoint:
    """The text configuration at the top of config.json, and no `model.visual.*`."""
    wrapper = "model.language_model."
    tensors = {
        name.replace(wrapper, "model.", 1): tensor
        for name, tensor in checkpoint.tensors.items()
        if not name.startswith("model.visual.")
    }
    tied = checkpoint.config["tie_word_embeddings"]
    config = {
        **checkpoint.text_config,
        "architectures": [architecture],
        "tie_word_embeddings": tied,
    }
    processors = ("preprocessor_config.json", "video_preprocessor_config.json")
    companions = [one for one in checkpoint.companions if one.name not in processors]
    return Checkpoint(config, tensors, tuple(companions))
