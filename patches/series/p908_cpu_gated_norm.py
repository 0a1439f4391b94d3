"""Gated norms run on a CPU without AMX."""

from patches.engine.edits import Insert
from patches.engine.patch import Patch
from patches.engine.place import Find

LAYERNORM_GATED = "kernels/ops/attention/fla/layernorm_gated.py"
FUSED_NORM_GATE = "kernels/ops/attention/fla/fused_norm_gate.py"

PATCH = Patch(
    number=908,
    title="[Fix] Gated norms without AMX on CPU",
    message="""\
## Motivation

`RMSNorm` and `LayerNorm` of `fla/layernorm_gated.py` and `FusedRMSNormGated` of
`fla/fused_norm_gate.py` call the CPU op when the CPU has AMX, and launch Triton on CPU
tensors when it has not.

## Modifications

Give the functions below them a PyTorch branch for CPU tensors, with the kernels'
options: groups, a bias, a gate before or after the norm, swish or sigmoid.

## Accuracy Tests

Every combination of the options against a loop over rows and groups in float64.
""",
    edits=(
        Insert(
            file=LAYERNORM_GATED,
            after="rms_norm_ref",
            code='''
            def _layer_norm_gated_cpu(
                x: torch.Tensor,
                weight: torch.Tensor,
                bias: torch.Tensor | None,
                eps: float,
                *,
                z: torch.Tensor | None,
                group_size: int | None,
                norm_before_gate: bool,
                is_rms_norm: bool,
                activation: str,
            ) -> torch.Tensor:
                """``_layer_norm_fwd`` without Triton: x [M, N], z like x or None."""
                gate = None
                if z is not None:
                    gate = z.reshape(x.shape).float()
                    gate = gate.sigmoid() if activation == "sigmoid" else F.silu(gate)
                out = x.float()
                if gate is not None and not norm_before_gate:
                    out = out * gate
                out = out.unflatten(-1, (-1, group_size or x.shape[-1]))
                if not is_rms_norm:
                    out = out - out.mean(dim=-1, keepdim=True)
                variance = out.square().mean(dim=-1, keepdim=True)
                out = (out * torch.rsqrt(variance + eps)).flatten(-2) * weight.float()
                if bias is not None:
                    out = out + bias.float()
                if gate is not None and norm_before_gate:
                    out = out * gate
                return out.to(x.dtype)
            ''',
        ),
        Insert(
            file=LAYERNORM_GATED,
            scope="rms_norm_gated",
            before=Find("if", mentions=("_is_npu",)),
            code="""
            if x.is_cpu:
                out = _layer_norm_gated_cpu(
                    x,
                    weight,
                    bias,
                    eps,
                    z=z,
                    group_size=group_size,
                    norm_before_gate=norm_before_gate,
                    is_rms_norm=is_rms_norm,
                    activation=activation,
                )
                return out.reshape(x_shape_og)
            """,
        ),
        Insert(
            file=FUSED_NORM_GATE,
            before="layer_norm_gated_fwd",
            code='''
            def _layer_norm_gated_fwd_cpu(
                x: torch.Tensor,
                g: torch.Tensor,
                weight: torch.Tensor | None,
                bias: torch.Tensor | None,
                activation: str,
                eps: float,
                residual: torch.Tensor | None,
                is_rms_norm: bool,
            ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
                """``layer_norm_gated_fwd`` without Triton, in float32: y, mean, rstd
                and the sum that was normalized."""
                total = x.float() if residual is None else x.float() + residual.float()
                mean = None if is_rms_norm else total.mean(dim=-1)
                centered = total if mean is None else total - mean.unsqueeze(-1)
                rstd = torch.rsqrt(centered.square().mean(dim=-1) + eps)
                y = centered * rstd.unsqueeze(-1)
                if weight is not None:
                    y = y * weight.float()
                if bias is not None:
                    y = y + bias.float()
                gate = g.reshape(x.shape).float()
                if activation == "sigmoid":
                    gate = gate.sigmoid()
                else:
                    gate = nn.functional.silu(gate)
                return y * gate, mean, rstd, total
            ''',
        ),
        Insert(
            file=FUSED_NORM_GATE,
            scope="layer_norm_gated_fwd",
            before=Find("assign", "y"),
            code="""
            if x.is_cpu:
                y, mean, rstd, total = _layer_norm_gated_fwd_cpu(
                    x, g, weight, bias, activation, eps, residual, is_rms_norm
                )
                sum_dtype = residual_dtype or x.dtype
                return y.to(out_dtype or x.dtype), mean, rstd, total.to(sum_dtype)
            """,
        ),
    ),
    tests=("unit/kernels/ops/attention/test_gated_norm_on_cpu.py",),
)
