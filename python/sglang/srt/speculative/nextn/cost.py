"""What an MTP head costs: memory beside the target, and bytes read to draft a token."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sglang.srt.speculative.nextn.checkpoint import sum_bytes
from sglang.srt.speculative.nextn.head_config import SparseMLP
from sglang.srt.speculative.nextn.head_plan import HeadPlan
from sglang.srt.speculative.nextn.inventory import StoredModule
from sglang.srt.speculative.nextn.safetensors_header import DTYPE_BITS
from sglang.srt.speculative.nextn.schemes import FLOATS, allowed_shapes
from sglang.srt.speculative.nextn.stored_shapes import QuantizationSizes

_KV_CACHE_BYTES_PER_VALUE = 2  # BF16, the default of --kv-cache-dtype


@dataclass(frozen=True)
class HeadCost:
    """Bytes that a head takes and moves. For one draft step of one request, without TP.

    Attributes:
        weight_bytes: of the head's own tensors, resident beside the target.
        kv_bytes_per_token: of the head's KV cache in BF16.
        active_weight_bytes: of the head's own tensors read by one draft step: of the
            routed experts only those that one token chooses.
        lm_head_bytes: of the target's `lm_head`, which each draft step reads.
        shared_bytes: of `embed_tokens` and `lm_head`, which a separate draft model
            would hold a second time.
        is_estimate: some sizes are the config's, because the shards are not here.
    """

    weight_bytes: int
    kv_bytes_per_token: int
    active_weight_bytes: int
    lm_head_bytes: int
    shared_bytes: int
    is_estimate: bool

    @property
    def draft_step_bytes(self) -> int:
        return self.active_weight_bytes + self.lm_head_bytes


def estimate_cost(plan: HeadPlan) -> HeadCost:
    """The cost of the head in `plan`; sizes that no header tells are the config's."""
    config, sizes = plan.config, plan.inventory.sizes
    modules = plan.inventory.modules
    experts = _stored_bytes((m for m in modules if _is_routed_expert(m)), sizes)
    others = _stored_bytes((m for m in modules if not _is_routed_expert(m)), sizes)
    share = 1.0
    if isinstance(config.mlp, SparseMLP):
        share = min(1.0, config.mlp.num_experts_per_tok / config.mlp.num_experts)
    embedding, lm_head, tables_known = _table_bytes(plan)
    return HeadCost(
        weight_bytes=experts + others,
        kv_bytes_per_token=(
            2 * plan.num_layers * config.key_value_size * _KV_CACHE_BYTES_PER_VALUE
        ),
        active_weight_bytes=others + round(experts * share),
        lm_head_bytes=lm_head,
        shared_bytes=embedding if config.tie_word_embeddings else embedding + lm_head,
        is_estimate=not (plan.checkpoint.has_shapes and tables_known),
    )


def _is_routed_expert(stored: StoredModule) -> bool:
    return stored.module.built_as.endswith(".mlp.experts")


def _stored_bytes(modules: Iterable[StoredModule], sizes: QuantizationSizes) -> int:
    return sum(_module_bytes(stored, sizes) for stored in modules)


def _module_bytes(stored: StoredModule, sizes: QuantizationSizes) -> int:
    known = sum_bytes(stored.found.values())
    if known is not None and stored.found:
        return known
    return sum(
        math.prod(allowed_shapes(tensor, stored.module.shape, sizes)[0])
        * DTYPE_BITS[tensor.dtypes[0]]
        // 8
        for tensor in stored.scheme.required.values()
    )


def _table_bytes(plan: HeadPlan) -> tuple[int, int, bool]:
    """Bytes of `embed_tokens` and of `lm_head`, and whether headers told them."""
    default = plan.config.vocab_size * plan.config.hidden_size * DTYPE_BITS[FLOATS[0]]
    shared = plan.checkpoint.shared
    embedding = sum_bytes(t for n, t in shared.items() if "embed_tokens" in n)
    lm_head = sum_bytes(t for n, t in shared.items() if "lm_head" in n)
    if plan.config.tie_word_embeddings:
        lm_head = embedding
    return (
        embedding or default // 8,
        lm_head or default // 8,
        bool(embedding and lm_head),
    )
