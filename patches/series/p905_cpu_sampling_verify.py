"""Speculation on the CPU samples from the target's distribution."""

from patches.engine.edits import AddImport, Insert, RemoveArgument, ReplaceExpression
from patches.engine.patch import Patch
from patches.engine.place import Find

EAGLE = "srt/speculative/eagle_utils.py"
VERIFY_OPS = "kernels/ops/speculative/verify_sampling.py"
VERIFY_TORCH = "kernels/ops/speculative/verify_sampling_torch.py"
RENORM_TORCH = "kernels/ops/sampling/renorm_torch.py"

PATCH = Patch(
    number=905,
    title="[Fix] Honour sampling parameters in speculative verify on CPU",
    message="""\
## Motivation

`eagle_sample` commits the argmax on the CPU whatever the request's temperature, so the
output is greedy after the first token without a word.

## Modifications

Add PyTorch versions of the two verify samplers,
`tree_speculative_sampling_target_only` and the rejection sampler with block
verification, and resolve them on the CPU. Top-k and
top-p are applied jointly, as the CPU's `pytorch` sampling backend applies them, so
the distribution is that of the same server without speculation.

## Accuracy Tests

10,000 samples of each kind of verify against the target's distribution (chi-square),
and the filters against those of the sampler without speculation.
""",
    edits=(
        ReplaceExpression(
            file=EAGLE,
            scope="_verify_uses_greedy",
            at=Find("return"),
            code="is_all_greedy or is_xpu or (is_hip and not use_rejection_sampling)",
        ),
        RemoveArgument(file=EAGLE, at="_verify_uses_greedy", name="is_cpu"),
        RemoveArgument(
            file=EAGLE,
            scope="eagle_sample",
            at=Find("call", "_verify_uses_greedy"),
            name="is_cpu",
        ),
        ReplaceExpression(
            file=EAGLE,
            scope="eagle_sample",
            at=Find("if", mentions=("need_top_k_sampling",)),
            code="sampling_info.need_top_k_sampling and not _is_cpu",
        ),
        ReplaceExpression(
            file=EAGLE,
            scope="eagle_sample",
            at=Find("if", mentions=("need_top_p_sampling",)),
            code="sampling_info.need_top_p_sampling and not _is_cpu",
        ),
        Insert(
            file=EAGLE,
            scope="eagle_sample",
            before=Find("if", mentions=("need_top_k_sampling",)),
            code="""
            if _is_cpu and (
                sampling_info.need_top_k_sampling or sampling_info.need_top_p_sampling
            ):
                target_probs = top_k_top_p_renorm_probs_torch(
                    target_probs,
                    torch.repeat_interleave(
                        sampling_info.top_ks, verify_input.draft_token_num, dim=0
                    ),
                    torch.repeat_interleave(
                        sampling_info.top_ps, verify_input.draft_token_num, dim=0
                    ),
                )
            """,
        ),
        AddImport(
            file=EAGLE,
            module="sglang.kernels.ops.sampling.renorm_torch",
            names=("top_k_top_p_renorm_probs_torch",),
            after="sglang.kernels.ops.sampling",
        ),
        AddImport(
            file=VERIFY_OPS,
            releases=">=0.5.23",
            module="sglang.srt.utils",
            names=("is_cpu",),
        ),
        Insert(
            file=VERIFY_OPS,
            releases=">=0.5.23",
            before=Find("assign", "__all__"),
            code="""
            if is_cpu():
                from sglang.kernels.ops.speculative.verify_sampling_torch import (
                    chain_speculative_sampling_torch,
                    tree_speculative_sampling_target_only_torch,
                )

                chain_speculative_sampling_triton = chain_speculative_sampling_torch
                tree_speculative_sampling_target_only = (
                    tree_speculative_sampling_target_only_torch
                )
            """,
        ),
        # Before 0.5.23 the verify step imported its samplers itself.
        Insert(
            file=EAGLE,
            releases="<0.5.23",
            scope="eagle_sample",
            after=Find("if", mentions=("_is_npu",), nth=0, of=3),
            code="""
            if _is_cpu:
                from sglang.kernels.ops.speculative.verify_sampling_torch import (
                    chain_speculative_sampling_torch,
                    tree_speculative_sampling_target_only_torch,
                )

                chain_speculative_sampling_triton = chain_speculative_sampling_torch
                tree_speculative_sampling_target_only = (
                    tree_speculative_sampling_target_only_torch
                )
            """,
        ),
        ReplaceExpression(
            file=EAGLE,
            releases="<0.5.23",
            scope="eagle_sample",
            at=Find("not", mentions=("_is_npu",)),
            code="not (_is_npu or _is_cpu)",
            sites=2,
        ),
    ),
    overlay=(VERIFY_TORCH, RENORM_TORCH),
    tests=("unit/speculative/test_verify_sampling_on_cpu.py",),
)
