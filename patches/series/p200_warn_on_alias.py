"""An algorithm that is not the one asked for is said in the log."""

from patches.engine.edits import Insert, ReplaceExpression
from patches.engine.patch import Patch
from patches.engine.place import Find

FILE = "srt/arg_groups/speculative_hook.py"
ALIAS = "_resolve_speculative_algorithm_alias"

PATCH = Patch(
    number=200,
    title="[Spec] Warn when --speculative-algorithm becomes another algorithm",
    message="""\
## Motivation

`--speculative-algorithm NEXTN` becomes EAGLE without a word, and a Gemma4 assistant
draft makes it FROZEN_KV_MTP at INFO. A draft path for a model that ships its own MTP
layer is answered with "DeepSeek MTP does not require …" whatever the model is.

## Modifications

- The alias and the promotion are logged at WARNING.
- The line about the draft path names the architecture of the model.

## Accuracy Tests

None: only log lines change.
""",
    edits=(
        ReplaceExpression(
            file=FILE,
            scope=ALIAS,
            at=Find("attribute", "logger.info"),
            code="logger.warning",
        ),
        Insert(
            file=FILE,
            scope=ALIAS,
            before=Find("return", mentions=("EAGLE",)),
            code="""
            if speculative_algorithm == "NEXTN":
                logger.warning(
                    "--speculative-algorithm NEXTN is an alias; EAGLE is used."
                )
            """,
        ),
        ReplaceExpression(
            file=FILE,
            scope="_handle_eagle_family",
            at=Find(
                "call",
                "logger.warning",
                within=Find(
                    "if",
                    mentions=(
                        "MistralLarge3ForCausalLM",
                        "PixtralForConditionalGeneration",
                    ),
                    nth=1,
                    of=2,
                ),
            ),
            code="""
            logger.warning(
                "%s ships its MTP layer in its own checkpoint; "
                "--speculative-draft-model-path is not needed.",
                model_arch,
            )
            """,
        ),
    ),
    tests=("unit/arg_groups/test_draft_path_warning.py",),
)
