"""What can be said of a kernel from its machine code alone.

``modelled_us`` is a bound, not a time: no kernel can be faster than its bytes at the
memory's rate, nor than its instructions at the rate of the schedulers, nor can the last
wave of blocks be shared. The rates are the data sheet's of an RTX PRO 6000.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from problems import Problem

from nvfp4_proof.compiler import compile_launch
from nvfp4_proof.static_gate import DEVICES, Facts, inspect
from nvfp4_proof.table_launches import launch_of
from sgl_kernel_nvfp4.config import GemmConfig
from sgl_kernel_nvfp4.formats import round_up
from sgl_kernel_nvfp4.policy import choose_gemm, moe_block_m

ARCH = 120
BYTES_PER_SECOND = 1.792e12
CLOCK = 2.6e9
SCHEDULERS = 4


@dataclass(frozen=True)
class StaticRow:
    """One line of the static table."""

    problem: Problem
    kernel: str
    config: GemmConfig
    facts: Facts
    blocks: float
    memory_us: float
    issue_us: float

    @property
    def waves(self) -> float:
        room = DEVICES[ARCH].multiprocessors * self.facts.blocks_per_multiprocessor
        return self.blocks / room

    @property
    def modelled_us(self) -> float:
        return max(self.memory_us, self.issue_us)

    @property
    def bound(self) -> str:
        return "memory" if self.memory_us >= self.issue_us else "issue"


def kernel_of(problem: Problem, half: bool = False) -> str:
    if problem.experts:
        return "w4a4_grouped_gemm"
    if problem.layer == "lm_head":
        return "w4a4_argmax"
    return "w4a16_gemm" if half else "w4a4_gemm"


def static_row(problem: Problem, half: bool = False) -> StaticRow:
    """The row of ``problem``; half takes 16-bit activations."""
    kernel = kernel_of(problem, half)
    device = DEVICES[ARCH]
    n, k = problem.n, round_up(problem.k, 32)
    block_m = 0
    if problem.experts:
        block_m = moe_block_m(problem.m, problem.top_k, problem.experts)
    config = choose_gemm(kernel, problem.rows, n, k, device, block_m=block_m)
    launch = launch_of(kernel, config, k % config.block_k, torch.bfloat16)
    facts = inspect(compile_launch(launch, ARCH))
    per_expert = problem.rows / problem.active_experts
    row_tiles = problem.active_experts * -(-per_expert // config.block_m)
    blocks = row_tiles * -(-n // config.block_n) * config.split_k
    steps = -(-k // config.block_k) / config.split_k
    instructions = facts.instructions + facts.loop_instructions * max(steps - 1, 0)
    issued = blocks * facts.warps * instructions
    bits = 16 if half else 4
    return StaticRow(
        problem=problem,
        kernel=kernel,
        config=config,
        facts=facts,
        blocks=blocks,
        memory_us=problem.bytes(4, bits) / BYTES_PER_SECOND * 1e6,
        issue_us=issued / (device.multiprocessors * SCHEDULERS * CLOCK) * 1e6,
    )
