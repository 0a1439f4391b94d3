"""Score a checkpoint in float32, offline: loss, acceptance, loops in long outputs.

    python test/models/evaluate.py [CHECKPOINT_DIR]

Acceptance is that of greedy NEXTN with a chain of drafts on `held_out_prompts.json`.
"""

import argparse
import json
import statistics
import sysconfig
from pathlib import Path

import torch
from tiny_qwen.data import read_sources, spaced_rows, tokenize
from tiny_qwen.decoding import continue_greedily
from tiny_qwen.evaluation import (
    encode,
    ends_in_loop,
    load_tokenizer,
    score_text,
    simulate_prompts,
)
from tiny_qwen.loading import load_model

HERE = Path(__file__).parent
TEXT_ROWS, TEXT_LENGTH = 64, 257


def main() -> None:
    options = parse_arguments()
    model = load_model(options.checkpoint)
    tokenizer = load_tokenizer(options.checkpoint)
    prompts = [
        encode(tokenizer, prompt) for prompt in json.loads(options.prompts.read_text())
    ]

    held_out = tokenize(tokenizer, read_sources(options.source).held_out)
    text = score_text(
        model, spaced_rows(held_out, TEXT_ROWS, TEXT_LENGTH), options.steps
    )
    print(f"held-out text: loss {text.loss:.3f}, draft agreement by step", end=" ")
    print(percentages(text.draft_agreement))

    for new_tokens in (options.new_tokens, options.long_tokens):
        rounds = simulate_prompts(model, prompts, new_tokens, options.steps)
        lengths = [result.accept_length for result in rounds]
        verifies = sum(result.verifies for result in rounds)
        by_position = [
            sum(position) / verifies
            for position in zip(*(r.accepted for r in rounds), strict=True)
        ]
        print(
            f"{len(prompts)} prompts, {new_tokens} new tokens: accept length "
            f"{statistics.mean(lengths):.2f} (from {min(lengths):.2f} to "
            f"{max(lengths):.2f}), tokens a verify {1 + sum(by_position):.2f}, "
            f"accepted by position {percentages(by_position)}"
        )

    texts = continue_greedily(model, prompts, options.long_tokens)
    outputs = [text[-options.long_tokens :] for text in texts]
    loops = [ends_in_loop(output.tolist()) for output in outputs]
    print(f"outputs of {options.long_tokens} tokens that end in a loop:", end=" ")
    print(percentages([statistics.mean(loops)]))
    if options.show:
        for prompt, output in zip(prompts, outputs, strict=True):
            print(f"\n{'-' * 72}\n{tokenizer.decode(prompt.tolist())}", end="⟫")
            print(tokenizer.decode(output.tolist()))


def percentages(values: list[float]) -> str:
    return " ".join(f"{100 * value:.0f} %" for value in values)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, nargs="?", default=HERE / "trained")
    parser.add_argument("--prompts", type=Path, default=HERE / "held_out_prompts.json")
    parser.add_argument("--steps", type=int, default=3, help="drafts a round")
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--long-tokens", type=int, default=96)
    parser.add_argument(
        "--source",
        type=Path,
        default=Path(sysconfig.get_paths()["stdlib"]),
        help="standard library, for its held-out modules",
    )
    parser.add_argument("--show", action="store_true", help="print the long outputs")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    return options


if __name__ == "__main__":
    main()
