"""The `sgl_kernel` module of SGLang's CPU engine, in plain PyTorch.

Importing it registers `torch.ops.sgl_kernel.*`. `select.install` makes SGLang find it
under the name `sgl_kernel`.
"""

from . import (  # noqa: F401  imported for their registrations
    activation,
    causal_conv1d,
    decode_attention,
    distributed,
    extend_attention,
    gated_delta_net_inputs,
    gated_delta_net_prefill,
    gated_delta_net_update,
    gemm,
    mamba,
    moe,
    murmur_hash,
    norm,
    rotary,
    threads,
    vision,
)
from .cache import copy_all_layer_kv_cache_cpu
from .cache_locations import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from .sampling import min_p_renorm_prob, top_k_renorm_prob, top_p_renorm_prob
from .speculative import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu
from .speculative_sampling import (
    chain_speculative_sampling,
    tree_speculative_sampling_target_only,
)

# SGLang takes its CPU path without AMX tiles where the kernels say that they need none.
REQUIRES_AMX = False

__all__ = [
    "REQUIRES_AMX",
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "chain_speculative_sampling",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "min_p_renorm_prob",
    "rotate_input_ids_cpu",
    "top_k_renorm_prob",
    "top_p_renorm_prob",
    "tree_speculative_sampling_target_only",
    "verify_tree_greedy_cpu",
]
