"""Routing to experts, and the experts."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from .gemm import linear
from .registry import kernel

_UNQUANTIZED = 0  # sglang.srt.layers.amx_utils.CPUQuantMethod


def _fake_topk(
    hidden_states: torch.Tensor,
    gating_output: torch.Tensor,
    topk: int,
    renormalize: bool,
    correction_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (hidden_states.shape[0], topk)
    return (
        hidden_states.new_empty(shape, dtype=torch.float32),
        hidden_states.new_empty(shape, dtype=torch.int32),
    )


def _topk(
    scores: torch.Tensor,
    topk: int,
    renormalize: bool,
    correction_bias: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The bias chooses; the unbiased scores weigh."""
    if correction_bias is None:
        weights, experts = scores.topk(topk, dim=-1)
    else:
        experts = (scores + correction_bias).topk(topk, dim=-1).indices
        weights = scores.gather(-1, experts)
    if renormalize:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights, experts.to(torch.int32)


@kernel(
    "topk_softmax_cpu(Tensor hidden_states, Tensor gating_output, int topk, "
    "bool renormalize, Tensor? correction_bias=None) -> (Tensor, Tensor)",
    fake=_fake_topk,
)
def topk_softmax_cpu(
    hidden_states: torch.Tensor,
    gating_output: torch.Tensor,
    topk: int,
    renormalize: bool,
    correction_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights float32 and experts int32 of each token, [num_tokens, topk].

    Args:
        hidden_states: [num_tokens, hidden_size]; only its shape matters.
        gating_output: [num_tokens, num_experts] router logits.
        renormalize: whether a token's weights are scaled to a sum of 1.
        correction_bias: [num_experts] float32, added to choose but not to weigh.
    """
    scores = gating_output.float().softmax(dim=-1)
    return _topk(scores, topk, renormalize, correction_bias)


@kernel(
    "topk_sigmoid_cpu(Tensor hidden_states, Tensor gating_output, int topk, "
    "bool renormalize, Tensor? correction_bias=None) -> (Tensor, Tensor)",
    fake=_fake_topk,
)
def topk_sigmoid_cpu(
    hidden_states: torch.Tensor,
    gating_output: torch.Tensor,
    topk: int,
    renormalize: bool,
    correction_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`topk_softmax_cpu` with sigmoid scores."""
    scores = gating_output.float().sigmoid()
    return _topk(scores, topk, renormalize, correction_bias)


def _silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def _gelu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return F.gelu(gate) * up


_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": _silu_and_mul,
    "gelu": _gelu_and_mul,
}


def _clamped_swiglu(alpha: float, limit: float) -> Callable[..., torch.Tensor]:
    """The gated unit of gpt-oss, whose gate and up channels alternate."""

    def activation(gate_up: torch.Tensor) -> torch.Tensor:
        gate = gate_up[..., ::2].clamp(max=limit)
        up = gate_up[..., 1::2].clamp(min=-limit, max=limit)
        return gate * torch.sigmoid(alpha * gate) * (up + 1)

    return activation


def _fake_experts(hidden_states: torch.Tensor, *args: object) -> torch.Tensor:
    return torch.empty_like(hidden_states, memory_format=torch.contiguous_format)


@kernel(
    "fused_experts_cpu(Tensor hidden_states, Tensor w1, Tensor w2, "
    "Tensor topk_weights, Tensor topk_ids, bool inplace, int moe_comp_method, "
    "Tensor? w1_scale, Tensor? w2_scale, Tensor? w1_zero, Tensor? w2_zero, "
    "int[]? block_size, Tensor? w1_bias, Tensor? w2_bias, float? alpha, "
    'float? limit, bool is_vnni, str? activation="silu") -> Tensor',
    fake=_fake_experts,
)
def fused_experts_cpu(
    hidden_states: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    inplace: bool,
    moe_comp_method: int,
    w1_scale: torch.Tensor | None,
    w2_scale: torch.Tensor | None,
    w1_zero: torch.Tensor | None,
    w2_zero: torch.Tensor | None,
    block_size: Sequence[int] | None,
    w1_bias: torch.Tensor | None,
    w2_bias: torch.Tensor | None,
    alpha: float | None,
    limit: float | None,
    is_vnni: bool,
    activation: str | None = "silu",
) -> torch.Tensor:
    """Weighted sum of each token's experts, [num_tokens, hidden_size].

    Args:
        hidden_states: [num_tokens, hidden_size].
        w1: [num_experts, 2 * intermediate_size, hidden_size], [gate | up].
        w2: [num_experts, hidden_size, intermediate_size].
        topk_weights: [num_tokens, topk].
        topk_ids: [num_tokens, topk] int, -1 for none.
        inplace: ignored, the result is always a new tensor.
        moe_comp_method: 0; quantized experts are not supported.
        w1_bias: [num_experts, 2 * intermediate_size].
        w2_bias: [num_experts, hidden_size].
        alpha: with `limit`, selects gpt-oss's clamped unit over `activation`.
        is_vnni: whether weights are packed; packing changes nothing here.
        activation: "silu" or "gelu".
    """
    if moe_comp_method != _UNQUANTIZED:
        raise RuntimeError(
            "The PyTorch CPU engine has no quantized experts (method "
            f"{moe_comp_method}); serve an unquantized checkpoint."
        )
    if alpha is not None and limit is not None:
        unit = _clamped_swiglu(alpha, limit)
    elif activation in _ACTIVATIONS:
        unit = _ACTIVATIONS[activation]
    else:
        raise RuntimeError(
            f"Unsupported activation {activation!r} of experts; supported are "
            f"{', '.join(sorted(_ACTIVATIONS))}."
        )

    topk = topk_ids.shape[1]
    routes = topk_ids.flatten().to(torch.int64)
    order = routes.argsort(stable=True)
    # One more bin at the front takes the routes of -1.
    counts = torch.bincount(routes + 1, minlength=1).tolist()
    output = torch.zeros(hidden_states.shape, dtype=torch.float32)
    start = counts[0]
    for expert, count in enumerate(counts[1:]):
        if count == 0:
            continue
        chosen = order[start : start + count]
        start += count
        tokens = chosen // topk
        gate_up = linear(
            hidden_states.index_select(0, tokens),
            w1[expert],
            None if w1_bias is None else w1_bias[expert],
        )
        inner = unit(gate_up.float()).to(hidden_states.dtype)
        out = linear(inner, w2[expert], None if w2_bias is None else w2_bias[expert])
        weight = topk_weights.reshape(-1, 1).index_select(0, chosen).float()
        output.index_add_(0, tokens, out.float() * weight)
    return output.to(hidden_states.dtype)
