"""What SGLang imports from `sgl_kernel.mamba`."""

from collections.abc import Sequence

import torch

from . import causal_conv1d
from .gated_delta_net_inputs import L2_NORM_EPS
from .gated_delta_net_prefill import prefill


def causal_conv1d_fn_cpu(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None = None,
    conv_states: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    cache_indices: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    seq_lens_cpu: Sequence[int] | None = None,
) -> torch.Tensor:
    """`causal_conv1d_fwd_cpu` with the arguments of SGLang's Triton kernel."""
    return torch.ops.sgl_kernel.causal_conv1d_fwd_cpu(
        x,
        weight,
        bias,
        conv_states,
        query_start_loc,
        cache_indices,
        has_initial_state,
        _is_silu(activation),
    )


def causal_conv1d_update_cpu(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | bool | None = None,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
    intermediate_conv_window: torch.Tensor | None = None,
    intermediate_state_indices: torch.Tensor | None = None,
    retrieve_next_token: torch.Tensor | None = None,
    retrieve_next_sibling: torch.Tensor | None = None,
    retrieve_parent_token: torch.Tensor | None = None,
) -> torch.Tensor:
    """`causal_conv1d.causal_conv1d_update_cpu` as SGLang's Triton kernel is called."""
    return torch.ops.sgl_kernel.causal_conv1d_update_cpu(
        x,
        conv_state,
        weight,
        bias,
        _is_silu(activation),
        cache_seqlens,
        conv_state_indices,
        causal_conv1d.PAD_SLOT_ID,
        True,
        intermediate_conv_window,
        intermediate_state_indices,
        retrieve_next_token,
        retrieve_next_sibling,
        retrieve_parent_token,
    )


def _is_silu(activation: str | bool | None) -> bool:
    return activation in ("silu", "swish", True)


def chunk_gated_delta_rule_cpu(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor,
    cu_seqlens: torch.Tensor,
    head_first: bool = False,
    use_qk_l2norm_in_kernel: bool = True,
    initial_state_indices: torch.Tensor | None = None,
) -> tuple[torch.Tensor, None, torch.Tensor]:
    """`gated_delta_net_prefill.prefill` as SGLang's Triton kernel is called.

    Returns:
        The output, None for the last states, which are in the pool, and the states
        before each chunk, which the radix cache of hybrid models keeps.
    """
    assert not head_first, "head-first activations are not supported"
    output, before_chunk = prefill(
        q,
        k,
        v,
        g,
        beta,
        initial_state,
        cu_seqlens,
        initial_state_indices,
        L2_NORM_EPS if use_qk_l2norm_in_kernel else None,
    )
    return output, None, before_chunk
