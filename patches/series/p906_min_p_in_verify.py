"""min_p reaches the verify step of speculation, on every platform."""

from patches.engine.edits import AddImport, Insert
from patches.engine.patch import Patch
from patches.engine.place import Find

EAGLE = "srt/speculative/eagle_utils.py"

PATCH = Patch(
    number=906,
    title="[Fix] Apply min_p in EAGLE verify",
    message="""\
## Motivation

`eagle_sample` applies temperature, top-k and top-p to the target's probabilities and
leaves out `min_p`: with speculation the parameter is accepted and has no effect after
the first token.

## Modifications

Apply it last, as the samplers without speculation do.

## Accuracy Tests

500 requests through `eagle_sample`: no token below the threshold is committed.
""",
    edits=(
        AddImport(
            file=EAGLE,
            module="sglang.kernels.ops.sampling.renorm_torch",
            names=("min_p_renorm_probs_torch",),
        ),
        Insert(
            file=EAGLE,
            scope="eagle_sample",
            before=Find("assign", "target_probs", mentions=("reshape",)),
            code="""
            if sampling_info.need_min_p_sampling:
                target_probs = min_p_renorm_probs_torch(
                    target_probs,
                    torch.repeat_interleave(
                        sampling_info.min_ps, verify_input.draft_token_num, dim=0
                    ),
                )
                maybe_detect_nan(target_probs, "v2 verify: target_probs after min_p")
            """,
        ),
    ),
    tests=("unit/speculative/test_min_p_in_verify.py",),
)
