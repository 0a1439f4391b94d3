"""Train the tiny Qwen3.5 with its MTP head on the standard library's source.

    python test/models/train.py OUT_DIR

Needs torch, tokenizers and safetensors, and under half an hour on two free cores.
"""

import argparse
import dataclasses
import os
import sysconfig
import time
from pathlib import Path

import torch
from tiny_qwen.architecture import Architecture
from tiny_qwen.data import read_sources, tokenize
from tiny_qwen.initial import initial_model
from tiny_qwen.tokenizer import train_tokenizer
from tiny_qwen.training import Plan, compile_layers, train
from tiny_qwen.writing import write_checkpoint


def main() -> None:
    options = parse_arguments()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    start = time.monotonic()

    architecture = Architecture()
    sources = read_sources(options.source)
    tokenizer = train_tokenizer(sources.train, architecture.vocab_size)
    tokens = tokenize(tokenizer, sources.train)
    report(f"{len(sources.train)} files, {len(tokens) / 1e6:.2f} M tokens")

    model = initial_model(architecture)
    if options.compile:
        compile_layers(model)
    train(model, tokens, options.plan, report)
    write_checkpoint(options.out, model, tokenizer)
    wall = (time.monotonic() - start) / 60
    report(f"{options.out}: {wall:.1f} min, {time.process_time() / 60:.1f} CPU min")


def report(line: str) -> None:
    print(line, flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="an empty or new folder")
    parser.add_argument(
        "--source",
        type=Path,
        default=Path(sysconfig.get_paths()["stdlib"]),
        help="folder of Python files (default: this interpreter's standard library)",
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--no-compile",
        dest="compile",
        action="store_false",
        help="do without torch.compile, for a short run or a machine without g++",
    )
    plan = Plan()
    for name in ("joint_steps", "head_steps", "minutes"):
        default = getattr(plan, name)
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=type(default), default=default)
    options = parser.parse_args()
    options.plan = dataclasses.replace(
        plan,
        joint_steps=options.joint_steps,
        head_steps=options.head_steps,
        minutes=options.minutes,
    )
    return options


if __name__ == "__main__":
    main()
