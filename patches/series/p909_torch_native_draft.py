"""torch_native attention serves both sides of speculation on the CPU."""

from patches.engine.edits import (
    AddArgument,
    ExtendCollection,
    Insert,
    ReplaceExpression,
)
from patches.engine.patch import Edit, Patch
from patches.engine.place import Find

BACKEND = "srt/layers/attention/torch_native_backend.py"
DRAFT_UTILS = "srt/speculative/draft_utils.py"
CLASS = "TorchNativeAttnBackend"
EXTEND_CALL = Find("call statement", "self._run_sdpa_forward_extend")
DECODE_CALL = Find("call statement", "self._run_sdpa_forward_decode")

EXTEND_LENS = '''
def _extend_lens(self, forward_batch: ForwardBatch):
    """Return (seq_lens, extend_prefix_lens, extend_seq_lens, tree_mask).

    A verify batch carries no extend_* fields: every request extends its sequence
    by the draft tokens. ``tree_mask`` is the flat bool mask [num_seqs,
    num_draft_tokens, num_draft_tokens] of a verify whose drafts are no chain.
    """
    if not forward_batch.forward_mode.is_target_verify():
        return (
            forward_batch.seq_lens,
            forward_batch.extend_prefix_lens,
            forward_batch.extend_seq_lens,
            None,
        )
    spec_info = forward_batch.spec_info
    num_draft_tokens = spec_info.draft_token_num
    prefix_lens = forward_batch.seq_lens
    extend_seq_lens = torch.full_like(prefix_lens, num_draft_tokens)
    tree_mask = None if spec_info.tree_topk == 1 else spec_info.custom_mask
    return prefix_lens + num_draft_tokens, prefix_lens, extend_seq_lens, tree_mask
'''

TREE_MASK = '''
@staticmethod
def _make_tree_mask(
    tree_mask: torch.Tensor, seq_idx: int, q_len: int, kv_len: int
) -> torch.Tensor:
    """Causal mask [kv_len, kv_len] whose last q_len tokens are one request's tree."""
    mask = torch.ones(kv_len, kv_len, dtype=torch.bool, device=tree_mask.device)
    mask = mask.tril_()
    tree = tree_mask.view(-1, q_len, q_len)[seq_idx]
    mask[kv_len - q_len :, kv_len - q_len :] = tree
    return mask
'''

MULTI_STEP = '''
class TorchNativeMultiStepDraftBackend:
    """One torch_native backend for each draft decoding step but the last."""

    def __init__(
        self, model_runner: ModelRunner, topk: int, speculative_num_steps: int
    ):
        from sgl_kernel import build_draft_decode_metadata_cpu

        self.build_draft_decode_metadata = build_draft_decode_metadata_cpu
        self.topk = topk
        self.speculative_num_steps = speculative_num_steps
        self.req_to_token_pool = model_runner.req_to_token_pool
        self.attn_backends = [
            TorchNativeAttnBackend(model_runner)
            for _ in range(speculative_num_steps - 1)
        ]

    def init_forward_metadata(self, forward_batch: ForwardBatch):
        """Give every branch of every request a row that holds its own tokens."""
        req_to_token = self.req_to_token_pool.req_to_token
        branch_to_token = self.build_draft_decode_metadata(
            req_to_token,
            forward_batch.req_pool_indices,
            forward_batch.seq_lens,
            self.topk,
            self.speculative_num_steps,
            req_to_token.shape[1],
        )
        branches = torch.arange(forward_batch.batch_size * self.topk)
        prefix_lens = forward_batch.seq_lens.repeat_interleave(self.topk)
        for step, backend in enumerate(self.attn_backends):
            backend.init_forward_metadata(forward_batch)
            backend.draft_decode_metadata = (
                branch_to_token,
                prefix_lens + step + 1,
                branches,
            )
'''

FACTORY = """
def _create_torch_native_decode_backend(self):
    from sglang.srt.layers.attention.torch_native_backend import (
        TorchNativeMultiStepDraftBackend,
    )

    return (
        "torch_native",
        TorchNativeMultiStepDraftBackend(
            self.draft_model_runner, self.topk, self.speculative_num_steps
        ),
    )

def _create_torch_native_prefill_backend(self):
    from sglang.srt.layers.attention.torch_native_backend import (
        TorchNativeAttnBackend,
    )

    return ("torch_native", TorchNativeAttnBackend(self.draft_model_runner))
"""


def replace_attributes(
    scope: str, within: Find, names: dict[str, str]
) -> tuple[Edit, ...]:
    """Turn arguments of a call that are attributes into local names."""
    return tuple(
        ReplaceExpression(
            file=BACKEND,
            scope=f"{CLASS}.{scope}",
            at=Find("attribute", attribute, within=within),
            code=name,
        )
        for attribute, name in names.items()
    )


PATCH = Patch(
    number=909,
    title="[CPU] Support torch_native attention in speculative decoding",
    message="""\
## Motivation

`--attention-backend torch_native`, the default on Arm CPUs, is refused as a draft
backend, and its extend path cannot verify: a verify batch has no extend_* fields.

## Modifications

Derive the lengths of a verify as the intel_amx backend does, honour the tree mask of
drafts with topk > 1, and add the multi-step draft backend.

## Accuracy Tests

Chains, trees and draft steps against attention in float64, token by token.
""",
    edits=(
        Insert(
            file=BACKEND,
            scope=f"{CLASS}.__init__",
            after=Find("assign", "self.forward_metadata"),
            code="self.draft_decode_metadata = None",
        ),
        Insert(
            file=BACKEND, scope=CLASS, before="init_forward_metadata", code=TREE_MASK
        ),
        Insert(
            file=BACKEND, scope=CLASS, before="init_forward_metadata", code=EXTEND_LENS
        ),
        AddArgument(
            file=BACKEND,
            scope=CLASS,
            at="_run_sdpa_forward_extend",
            code="tree_mask: Optional[torch.Tensor] = None",
        ),
        Insert(
            file=BACKEND,
            scope=f"{CLASS}._run_sdpa_forward_extend",
            before=Find("assign", "per_req_out_redudant"),
            code="""
            if tree_mask is not None:
                tree = self._make_tree_mask(
                    tree_mask, seq_idx, int(extend_seq_len_q), int(seq_len_kv)
                )
                attn_mask = tree if attn_mask is None else attn_mask & tree
                is_causal = False
            """,
        ),
        Insert(
            file=BACKEND,
            scope=f"{CLASS}.forward_extend",
            before=EXTEND_CALL,
            code="""
            seq_lens, extend_prefix_lens, extend_seq_lens, tree_mask = (
                self._extend_lens(forward_batch)
            )
            """,
        ),
        *replace_attributes(
            "forward_extend",
            EXTEND_CALL,
            {
                "forward_batch.seq_lens": "seq_lens",
                "forward_batch.extend_prefix_lens": "extend_prefix_lens",
                "forward_batch.extend_seq_lens": "extend_seq_lens",
            },
        ),
        AddArgument(
            file=BACKEND,
            scope=f"{CLASS}.forward_extend",
            at=Find("call", "self._run_sdpa_forward_extend"),
            code="tree_mask=tree_mask",
        ),
        Insert(
            file=BACKEND,
            scope=f"{CLASS}.forward_decode",
            before=DECODE_CALL,
            code="""
            if self.draft_decode_metadata is not None:
                req_to_token, seq_lens, req_pool_indices = self.draft_decode_metadata
            else:
                req_to_token = self.req_to_token_pool.req_to_token
                seq_lens = forward_batch.seq_lens
                req_pool_indices = forward_batch.req_pool_indices
            """,
        ),
        *replace_attributes(
            "forward_decode",
            DECODE_CALL,
            {
                "self.req_to_token_pool.req_to_token": "req_to_token",
                "forward_batch.req_pool_indices": "req_pool_indices",
                "forward_batch.seq_lens": "seq_lens",
            },
        ),
        Insert(file=BACKEND, after=CLASS, code=MULTI_STEP),
        ExtendCollection(
            file=DRAFT_UTILS,
            scope="DraftBackendFactory.create_decode_backend",
            at=Find("assign", "backend_map"),
            code='"torch_native": self._create_torch_native_decode_backend',
        ),
        ExtendCollection(
            file=DRAFT_UTILS,
            scope="DraftBackendFactory.create_draft_extend_backend",
            at=Find("assign", "backend_map"),
            code='"torch_native": self._create_torch_native_prefill_backend',
        ),
        Insert(
            file=DRAFT_UTILS,
            scope="DraftBackendFactory",
            before="_create_hybrid_linear_attn_decode_backend",
            code=FACTORY,
        ),
    ),
    tests=("unit/layers/attention/test_torch_native_speculation.py",),
)
