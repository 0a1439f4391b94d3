"""NVFP4 experts on the Triton kernels of sgl_kernel_nvfp4, as an MoE runner."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

import torch
from sgl_kernel_nvfp4 import moe, moe_block_m, pad_codes
from sgl_kernel_nvfp4 import reference as cpu
from sgl_kernel_nvfp4 import swizzle_scales
from torch import nn

from sglang.srt.layers.moe.moe_runner.base import (
    DispatchMoeRunnerCore,
    MoeQuantInfo,
    MoeRunnerConfig,
)
from sglang.srt.layers.moe.moe_runner.runner import (
    MoeRunner,
    register_moe_runner_core,
)
from sglang.srt.layers.moe.utils import (
    MoeRunnerBackendLike,
    resolve_moe_runner_backend,
)
from sglang.srt.layers.utils.common import (
    alias_or_bind_derived_param,
    copy_or_rebind_param,
)

if TYPE_CHECKING:
    from sglang.srt.layers.moe.token_dispatcher import CombineInput, DispatchOutput

logger = logging.getLogger(__name__)

NVFP4_TRITON = "nvfp4_triton"


@dataclass
class Nvfp4TritonMoeQuantInfo(MoeQuantInfo):
    """Experts in the layout of the kernels.

    Attributes:
        w13_weight: uint8 [experts, 2 * intermediate, hidden / 2], gate rows first.
        w13_scale: float8_e4m3fn 128x4 scales of it.
        w13_alpha: float32 [experts].
        w13_input_scale_inv: float32 [1]; None keeps activations as they are (W4A16).
        w2_weight, w2_scale, w2_alpha: likewise, [experts, hidden, intermediate / 2].
        w2_input_scale_inv: float32 [experts]; None as above.
        apply_routed_scaling_factor: whether the router's weights lack the factor.
    """

    w13_weight: torch.Tensor
    w13_scale: torch.Tensor
    w13_alpha: torch.Tensor
    w13_input_scale_inv: Optional[torch.Tensor]
    w2_weight: torch.Tensor
    w2_scale: torch.Tensor
    w2_alpha: torch.Tensor
    w2_input_scale_inv: Optional[torch.Tensor]
    apply_routed_scaling_factor: bool

    @classmethod
    def of(cls, layer: nn.Module) -> Nvfp4TritonMoeQuantInfo:
        """The experts of a layer that ``prepare_nvfp4_experts`` has prepared."""
        return cls(
            w13_weight=layer.w13_weight,
            w13_scale=layer.w13_blockscale_swizzled,
            w13_alpha=layer.g1_alphas,
            w13_input_scale_inv=layer.w13_input_scale_quant,
            w2_weight=layer.w2_weight,
            w2_scale=layer.w2_blockscale_swizzled,
            w2_alpha=layer.g2_alphas,
            w2_input_scale_inv=layer.w2_input_scale_quant,
            apply_routed_scaling_factor=(
                not layer.should_fuse_routed_scaling_factor_in_topk
            ),
        )


def prepare_nvfp4_experts(
    layer: nn.Module,
    w13_weight_scale_2: torch.Tensor,
    w2_weight_scale_2: torch.Tensor,
    w13_input_scale: Optional[torch.Tensor] = None,
    w2_input_scale: Optional[torch.Tensor] = None,
) -> None:
    """Bring the loaded experts of ``layer`` into the layout of the kernels.

    Args:
        layer: has ``w13_weight`` and ``w2_weight``, uint8, gate rows first, and
            ``w13_weight_scale`` and ``w2_weight_scale``, float8_e4m3fn in row-major
            order.
        w13_weight_scale_2: float32 [experts, 2], of gate and up.
        w2_weight_scale_2: float32 [experts].
        w13_input_scale: float32 scalar, one for all experts; None for W4A16.
        w2_input_scale: float32 [experts]; None for W4A16.

    Raises:
        ValueError: the experts are W4A16 and on a GPU, where no kernel serves them.
    """
    if w13_input_scale is None and layer.w13_weight.device.type != "cpu":
        raise ValueError(
            "--moe-runner-backend triton serves NVFP4 experts with quantized "
            "activations (W4A4); these are weight-only (W4A16). "
            "Use --moe-runner-backend marlin."
        )
    w13_alpha = _tie_gate_and_up(layer.w13_weight_scale, w13_weight_scale_2)
    for name in ("w13", "w2"):
        weight = getattr(layer, f"{name}_weight").data
        copy_or_rebind_param(layer, f"{name}_weight", pad_codes(weight))
        scale = swizzle_scales(getattr(layer, f"{name}_weight_scale").data)
        alias_or_bind_derived_param(
            layer, f"{name}_weight_scale", f"{name}_blockscale_swizzled", scale
        )
    _set_factors(layer, "g1_alphas", "w13", w13_alpha, w13_input_scale)
    _set_factors(layer, "g2_alphas", "w2", w2_weight_scale_2, w2_input_scale)
    layer.dispatcher.set_quant_config({"input_global_scale": None})


def create_nvfp4_runner(config: MoeRunnerConfig) -> MoeRunner:
    """A runner for prepared experts.

    Raises:
        ValueError: the experts compute something that the kernels do not.
    """
    unsupported = {
        "activation": config.activation != "silu" or not config.is_gated,
        "no_combine": config.no_combine,
        "apply_router_weight_on_input": config.apply_router_weight_on_input,
        "gemm1_alpha": config.gemm1_alpha is not None,
        "gemm1_clamp_limit": config.gemm1_clamp_limit is not None,
        "swiglu_limit": config.swiglu_limit is not None,
    }
    if found := [name for name, is_set in unsupported.items() if is_set]:
        raise ValueError(
            "--moe-runner-backend triton serves NVFP4 experts with a plain gated SiLU; "
            f"this model sets {', '.join(found)}. "
            "Use --moe-runner-backend flashinfer_cutlass."
        )
    return MoeRunner(resolve_moe_runner_backend(NVFP4_TRITON), config)


class Nvfp4TritonRunnerCore(DispatchMoeRunnerCore):
    """Runs experts on tokens that were not moved between ranks."""

    @property
    def runner_backend(self) -> MoeRunnerBackendLike:
        return resolve_moe_runner_backend(NVFP4_TRITON)

    def run_from_dispatch(
        self,
        dispatch_output: DispatchOutput,
        quant_info: Nvfp4TritonMoeQuantInfo,
        runner_config: MoeRunnerConfig,
        hooks: Any = None,
    ) -> CombineInput:
        from sglang.srt.layers.moe.token_dispatcher.standard import (
            StandardCombineInput,
        )

        if not dispatch_output.format.is_standard():
            raise ValueError(
                "--moe-runner-backend triton serves NVFP4 experts with "
                "--moe-a2a-backend none only, got "
                f"{dispatch_output.format.value} tokens"
            )
        x = dispatch_output.hidden_states
        topk_weights, topk_ids, _ = dispatch_output.topk_output
        if x.device.type == "cpu":
            # Models apply the routed scaling factor themselves on the CPU.
            out = _experts_on_cpu(x, topk_weights, topk_ids, quant_info)
        else:
            factor = runner_config.routed_scaling_factor
            if factor is None or not quant_info.apply_routed_scaling_factor:
                factor = 1.0
            out = _experts(x, topk_weights, topk_ids, quant_info, factor)
        return StandardCombineInput(hidden_states=out)


register_moe_runner_core(NVFP4_TRITON, Nvfp4TritonRunnerCore)


def _experts(
    x: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    experts: Nvfp4TritonMoeQuantInfo,
    routed_scaling_factor: float,
) -> torch.Tensor:
    from sglang.srt.layers.moe.moe_runner.triton_utils.moe_align_block_size import (
        moe_align_block_size,
    )

    num_experts = experts.w13_weight.shape[0]
    block_m = moe_block_m(x.shape[0], topk_ids.shape[1], num_experts)
    return moe(
        x,
        experts.w13_weight,
        experts.w13_scale,
        experts.w13_alpha,
        experts.w13_input_scale_inv,
        experts.w2_weight,
        experts.w2_scale,
        experts.w2_alpha,
        experts.w2_input_scale_inv,
        topk_weights,
        topk_ids,
        *moe_align_block_size(topk_ids, block_m, num_experts),
        block_m,
        gate_first=True,
        routed_scaling_factor=routed_scaling_factor,
    )


def _experts_on_cpu(
    x: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    experts: Nvfp4TritonMoeQuantInfo,
) -> torch.Tensor:
    """The same in PyTorch: x [tokens, hidden] in any floating type."""
    out = x.new_zeros(x.shape, dtype=torch.float32)
    for expert in topk_ids.unique().tolist():
        if expert < 0:  # held by another rank
            continue
        token, choice = (topk_ids == expert).nonzero(as_tuple=True)
        hidden = _matmul_on_cpu(
            x[token],
            experts.w13_input_scale_inv,
            experts.w13_weight[expert],
            experts.w13_scale[expert],
            experts.w13_alpha[expert],
        )
        hidden = cpu.silu_and_mul(hidden.to(x.dtype))
        scale_inv = experts.w2_input_scale_inv
        hidden = _matmul_on_cpu(
            hidden,
            None if scale_inv is None else scale_inv[expert],
            experts.w2_weight[expert],
            experts.w2_scale[expert],
            experts.w2_alpha[expert],
        )
        out.index_add_(0, token, hidden * topk_weights[token, choice, None])
    return out.to(x.dtype)


def _matmul_on_cpu(
    x: torch.Tensor,
    input_scale_inv: Optional[torch.Tensor],
    weight: torch.Tensor,
    scale: torch.Tensor,
    alpha: torch.Tensor,
) -> torch.Tensor:
    if input_scale_inv is None:
        return cpu.w4a16_gemm(x, weight, scale, alpha, torch.float32)
    codes = cpu.quantize(x, input_scale_inv)
    return cpu.gemm(*codes, weight, scale, alpha, codes[0].shape[1] * 2, torch.float32)


def _tie_gate_and_up(
    block_scale: torch.Tensor, weight_scale_2: torch.Tensor
) -> torch.Tensor:
    """One scale for gate and up of each expert, [experts]; block scales take the rest.

    block_scale: float8_e4m3fn [experts, 2 * intermediate, hidden / 16], changed in
    place where the two scales differ.
    """
    shared = weight_scale_2.amax(dim=1)
    ratios = weight_scale_2 / shared[:, None]
    if not torch.all(ratios == 1):
        logger.warning_once(
            "NVFP4 experts have different weight scales for gate and up; the block "
            "scales are rounded once more. Accuracy may be affected."
        )
        halves = block_scale.data.unflatten(1, (2, -1))
        halves.copy_(halves.float() * ratios[:, :, None, None])
    return shared


def _set_factors(
    layer: nn.Module,
    alpha_name: str,
    prefix: str,
    weight_scale_2: torch.Tensor,
    input_scale: Optional[torch.Tensor],
) -> None:
    name = f"{prefix}_input_scale_quant"
    weight_scale_2 = weight_scale_2.to(torch.float32)
    if input_scale is None:
        setattr(layer, name, None)
        copy_or_rebind_param(layer, alpha_name, weight_scale_2)
    else:
        input_scale = input_scale.to(torch.float32)
        copy_or_rebind_param(layer, name, 1 / input_scale)
        copy_or_rebind_param(layer, alpha_name, input_scale * weight_scale_2)
