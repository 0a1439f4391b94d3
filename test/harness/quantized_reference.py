"""transformers on an NVFP4 checkpoint, quantising as the checkpoint says.

Nothing here is the code under test: compressed-tensors unpacks the weights and rounds
activations to e2m1, and transformers computes in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization.quant_args import FP4_E2M1_DATA
from tiny_qwen.checkpoint import Checkpoint
from torch import Tensor, nn

from harness.reference import Reference, TokenIds

BLOCK = 16
E2M1_MAX, E4M3_MAX = 6.0, 448.0

SCALE_SUFFIXES = (
    *(".weight_scale", ".weight_scale_2", ".input_scale"),
    *(".weight_global_scale", ".input_global_scale"),
)


class QuantizedReference(Reference):
    """``Reference`` for a quantised checkpoint.

    Args:
        folder: the quantised checkpoint, in either layout.
        out: an empty folder, for the weights as float32.
    """

    def __init__(self, folder: Path, out: Path):
        checkpoint = Checkpoint.read(folder)
        dequantized(checkpoint).write(out)
        super().__init__(str(out))
        self.folder = str(folder)
        self.is_quantizing = True
        self.noise = 0.0
        scales = input_scales(checkpoint)
        self.quantizes_inputs = has_quantized_inputs(checkpoint)
        assert bool(scales) == self.quantizes_inputs
        quantize_activations(self, scales)

    @torch.inference_mode()
    def greedy_together(
        self, prompts: Sequence[Sequence[int]], new_tokens: int
    ) -> list[TokenIds]:
        """``greedy`` for prompts of one length, all at once."""
        ids = torch.tensor(prompts)
        output = self.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=new_tokens,
            eos_token_id=None,
            pad_token_id=0,
        )
        return [tuple(row) for row in output[:, ids.shape[1] :].tolist()]

    @torch.inference_mode()
    def survives_noise(
        self, prompt: Sequence[int], new_tokens: Sequence[int], noise: float, runs: int
    ) -> bool:
        """Whether every new token stays the most likely one in ``runs`` runs in which
        the inputs of the quantised layers are off by ``noise``, relatively."""
        torch.manual_seed(0)
        tokens = torch.tensor([[*prompt, *new_tokens]]).expand(runs, -1)
        self.noise = noise
        try:
            logits = self.model(input_ids=tokens).logits[:, len(prompt) - 1 : -1]
        finally:
            self.noise = 0.0
        return bool((logits.argmax(-1) == tokens[:, len(prompt) :]).all())

    def greatest_loss(self, prompt: Sequence[int], new_tokens: Sequence[int]) -> float:
        """How far the logit of any new token is below the greatest, at most."""
        tokens = torch.tensor([[*prompt, *new_tokens]])
        with torch.inference_mode():
            logits = self.model(input_ids=tokens).logits[0, len(prompt) - 1 : -1]
        chosen = logits.gather(-1, tokens[0, len(prompt) :, None])[:, 0]
        return float((logits.amax(-1) - chosen).max())

    def logprobs_without_activation_quantisation(
        self, tokens: Sequence[int]
    ) -> list[float]:
        self.is_quantizing = False
        try:
            return self.logprobs(tokens)
        finally:
            self.is_quantizing = True

    def fake_quantized(self, x: Tensor, input_scale: Tensor) -> Tensor:
        if not self.is_quantizing:
            return x
        if self.noise:
            x = x * (1 + self.noise * torch.randn_like(x))
        return fake_quantized(x, input_scale)


def dequantized(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with float32 weights, and without a word of quantisation."""
    tensors = {}
    for name, tensor in checkpoint.tensors.items():
        if tensor.dtype == torch.uint8:
            module = name.rpartition(".")[0]
            tensors[f"{module}.weight"] = dequantized_weight(checkpoint, module, tensor)
        elif not name.endswith(SCALE_SUFFIXES):
            tensors[name] = tensor
    config = {**checkpoint.config}
    del config["quantization_config"]
    companions = tuple(f for f in checkpoint.companions if "quant" not in f.name)
    return Checkpoint(config, tensors, companions)


def dequantized_weight(checkpoint: Checkpoint, module: str, packed: Tensor) -> Tensor:
    rows, half = packed.shape
    values = unpack_fp4_from_uint8(packed, rows, 2 * half, torch.float32)
    block_scale = checkpoint.tensors[f"{module}.weight_scale"].float()
    scale = checkpoint.tensors.get(f"{module}.weight_scale_2")
    if scale is None:
        scale = 1 / checkpoint.tensors[f"{module}.weight_global_scale"]
    return values * block_scale.repeat_interleave(BLOCK, dim=1) * scale


def has_quantized_inputs(checkpoint: Checkpoint) -> bool:
    """Whether the configuration asks for W4A4, not for W4A16."""
    groups = checkpoint.config["quantization_config"]["config_groups"]
    return "input_activations" in groups["group_0"]


def input_scales(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The input scale of each module that has one."""
    scales = {}
    for name, tensor in checkpoint.tensors.items():
        module, _, last = name.rpartition(".")
        if last == "input_scale":
            scales[module] = tensor
        elif last == "input_global_scale":
            scales[module] = 1 / tensor[0]
    return scales


def quantize_activations(
    reference: QuantizedReference, scales: dict[str, Tensor]
) -> None:
    """Make every module of ``scales`` quantise what it multiplies."""
    modules = dict(reference.model.named_modules())
    for name, scale in scales.items():
        if name.startswith("mtp."):
            continue  # transformers has no head
        layer, separator, _ = name.partition(".experts.")
        if separator:
            replace_experts(reference, modules[f"{layer}.experts"], layer, scales)
        else:
            modules[name].register_forward_pre_hook(
                lambda _, args, scale=scale: (reference.fake_quantized(args[0], scale),)
            )


def replace_experts(
    reference: QuantizedReference,
    experts: nn.Module,
    layer: str,
    scales: dict[str, Tensor],
) -> None:
    quantized = reference.fake_quantized

    def forward(hidden: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        out = torch.zeros_like(hidden)
        for expert in range(experts.gate_up_proj.shape[0]):
            token, choice = (top_k_index == expert).nonzero(as_tuple=True)
            x = quantized(hidden[token], scales[f"{layer}.experts.{expert}.gate_proj"])
            gate, up = (x @ experts.gate_up_proj[expert].T).chunk(2, dim=-1)
            inner = nn.functional.silu(gate) * up
            inner = quantized(inner, scales[f"{layer}.experts.{expert}.down_proj"])
            weight = top_k_weights[token, choice, None]
            out[token] += inner @ experts.down_proj[expert].T * weight
        return out

    experts.forward = forward


def fake_quantized(x: Tensor, input_scale: Tensor) -> Tensor:
    """x as NVFP4 holds it: block scales in e4m3, values in e2m1, in float64."""
    factor = (1 / input_scale.float()).double()
    blocks = (x.double() * factor).unflatten(-1, (-1, BLOCK))
    scale = blocks.abs().amax(-1, keepdim=True) / E2M1_MAX
    scale = scale.clamp(max=E4M3_MAX).float().to(torch.float8_e4m3fn).double()
    scaled = torch.where(scale == 0, 0.0, blocks / scale)
    values = FP4_E2M1_DATA.cast_to_fp4(scaled.clamp(-E2M1_MAX, E2M1_MAX))
    return (values * scale / factor).flatten(-2).to(x.dtype)
