"""Penalties with speculation are those without it."""

from patches.engine.edits import (
    AddImport,
    Insert,
    ReplaceExpression,
    ReplaceStatement,
)
from patches.engine.patch import Patch
from patches.engine.place import Find

PENALTIES = "srt/sampling/penaltylib"
SAMPLING_INFO = "srt/sampling/sampling_batch_info.py"
EAGLE = "srt/speculative/eagle_utils.py"
DRAFT_PATHS = f"{PENALTIES}/draft_paths.py"


def insert_cumulate_at(file: str, penalizer: str, body: str) -> Insert:
    """Give a penalizer a way to take in several tokens of a request at once."""
    return Insert(
        file=f"{PENALTIES}/{file}",
        scope=penalizer,
        after="_cumulate_output_tokens",
        code=f"def cumulate_at(self, rows: torch.Tensor, tokens: torch.Tensor):{body}",
    )


PENALIZERS = (
    insert_cumulate_at(
        "frequency_penalty.py",
        "BatchedFrequencyPenalizer",
        """
    self.cumulated_frequency_penalties.index_put_(
        (rows, tokens), self.frequency_penalties[rows, 0], accumulate=True
    )
""",
    ),
    insert_cumulate_at(
        "presence_penalty.py",
        "BatchedPresencePenalizer",
        """
    penalties = self.presence_penalties[rows, 0]
    self.cumulated_presence_penalties[rows, tokens] = penalties
""",
    ),
    insert_cumulate_at(
        "repetition_penalty.py",
        "BatchedRepetitionPenalizer",
        """
    penalties = self.repetition_penalties[rows, 0]
    self.cumulated_repetition_penalties[rows, tokens] = penalties
""",
    ),
    insert_cumulate_at(
        "min_new_tokens.py",
        "BatchedMinNewTokensPenalizer",
        """
    ones = torch.ones_like(rows, dtype=torch.int32)
    self.len_output_tokens.index_add_(0, rows, ones[:, None])
""",
    ),
)

COMMITTED_TOKENS = (
    Insert(
        file="srt/managers/schedule_batch.py",
        scope="Req.__init__",
        after=Find("assign", "self.output_ids"),
        code="""
        # How many of them the penalizers of the request's batch have seen.
        self.num_penalized_tokens = 0
        """,
    ),
    Insert(
        file=SAMPLING_INFO,
        scope="SamplingBatchInfo.from_schedule_batch",
        after=Find("assign", "penalizer_orchestrator"),
        code="""
        # What they have seen is gone with the batch that a request was in before.
        for req in reqs:
            req.num_penalized_tokens = 0
        """,
    ),
    ReplaceStatement(
        file=EAGLE,
        scope="eagle_prepare_for_decode",
        at=Find("if", mentions=("penalizer_orchestrator",)),
        code="""
        if batch.sampling_info.penalizer_orchestrator.is_required:
            cumulate_committed_tokens(batch)
        """,
    ),
)

VERIFY_ROWS = (
    Insert(
        file=SAMPLING_INFO,
        scope="SamplingBatchInfo",
        after=Find("assign", "acc_scaling_penalties"),
        code="""
        # Used in the verify step of speculation
        draft_path_penalties: Optional[DraftPathPenalties] = None
        """,
    ),
    AddImport(
        file=SAMPLING_INFO,
        module="sglang.srt.sampling.penaltylib.draft_paths",
        names=("DraftPathPenalties",),
        after="sglang.srt.sampling.custom_logit_processor",
    ),
    ReplaceStatement(
        file=SAMPLING_INFO,
        scope="SamplingBatchInfo.copy_for_forward",
        at=Find("return"),
        code="""
        penalties = None
        if (
            self.penalizer_orchestrator.is_required
            and get_spec().speculative_algorithm is not None
        ):
            penalties = DraftPathPenalties.of(self.penalizer_orchestrator)
        return dataclasses.replace(
            self, penalizer_orchestrator=None, draft_path_penalties=penalties
        )
        """,
    ),
    AddImport(
        file=SAMPLING_INFO,
        module="sglang.srt.runtime_context",
        names=("get_spec",),
    ),
    ReplaceStatement(
        file=EAGLE,
        scope="eagle_sample",
        at=Find("if", mentions=("acc_additive_penalties",)),
        code="""
        if sampling_info.draft_path_penalties is not None:
            sampling_info.draft_path_penalties.apply(next_token_logits, verify_input)
        """,
    ),
    ReplaceStatement(
        file=EAGLE,
        scope="eagle_sample",
        at=Find("if", mentions=("acc_scaling_penalties",)),
        code="",
    ),
    ReplaceStatement(
        file=EAGLE,
        scope="eagle_sample",
        at=Find("import", "sglang.srt.sampling.penaltylib.repetition_penalty"),
        code="",
    ),
    Insert(
        file=EAGLE,
        before=Find("import", "sglang.srt.utils"),
        code="""
        from sglang.srt.sampling.penaltylib.draft_paths import cumulate_committed_tokens
        """,
    ),
)

SAME_ORDER = (
    ReplaceExpression(
        file=f"{PENALTIES}/orchestrator.py",
        scope="BatchedPenalizerOrchestrator.__init__",
        at=Find("assign", "self.penalizers"),
        code="""
        {
            Penalizer: Penalizer(self)
            for Penalizer in sorted(
                penalizers, key=lambda kind: (kind.is_multiplicative, kind.__name__)
            )
        }
        """,
    ),
)

PATCH = Patch(
    number=650,
    title="[Fix] Apply penalties exactly in EAGLE verify",
    message="""\
## Motivation

With speculation, `repetition_penalty`, `frequency_penalty`, `presence_penalty` and
`min_new_tokens` give other text than without:

- before a verify step the penalizers take in one token a request, however many the last
  step committed, so most of the output is never counted;
- every row of a verify step has the penalties of the first one, as if the drafts before
  it were not part of the text;
- penalizers are kept in a set of classes, so that in each process another one comes
  first, and a factor and a term do not commute.

## Modifications

Take in every committed token, and penalise each row with the drafts on its path (a
chain or a tree). A request that is retracted gets its counts back when it resumes.
Nothing synchronises the device. Where the overlap schedule runs, the tokens of the step
in flight are counted one step late, as they are without speculation.

## Accuracy Tests

On the CPU, in float32: each row against the same penalizers fed one token at a time. In
the fork's server tests, answers with penalties are the same with speculation and
without.

## Benchmark and Profiling

None. For each step the counts of the drafts on a path are added, in a few tensor
operations; what they cost on a GPU was not measured.
""",
    edits=(*PENALIZERS, *COMMITTED_TOKENS, *VERIFY_ROWS, *SAME_ORDER),
    overlay=(DRAFT_PATHS,),
    tests=("unit/sampling/test_draft_path_penalties.py",),
)
