"""Read a cubin with the disassembler that Triton bundles."""

from __future__ import annotations

import collections
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass

import triton.backends.nvidia

TOOLS = os.path.join(os.path.dirname(triton.backends.nvidia.__file__), "bin")

INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P[T0-9]+ )?([A-Z][\w.]*)([^;]*);"
)
LABEL = re.compile(r"^(\.L\w+):")
BRANCH_TARGET = re.compile(r"`\((\.L\w+)\)")
MMA_PREFIXES = ("OMMA", "QMMA", "HMMA", "IMMA")


@dataclass(frozen=True)
class Instruction:
    opcode: str
    operands: str


@dataclass(frozen=True)
class Sass:
    """The machine code of one kernel and what the assembler says about it."""

    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    registers: int
    stack: int
    local: int

    def main_loop(self) -> tuple[Instruction, ...]:
        """The shortest loop with a matrix instruction; all of the code without one."""
        loops = []
        for end, instruction in enumerate(self.instructions):
            target = BRANCH_TARGET.search(instruction.operands)
            if not instruction.opcode.startswith("BRA") or target is None:
                continue
            start = self.labels.get(target.group(1), end + 1)
            body = self.instructions[start : end + 1]
            if any(i.opcode.startswith(MMA_PREFIXES) for i in body):
                loops.append(body)
        return min(loops, key=len) if loops else self.instructions

    def opcodes(self) -> collections.Counter[str]:
        return collections.Counter(i.opcode for i in self.instructions)


def _run(tool: str, *arguments: str) -> str:
    command = [os.path.join(TOOLS, tool), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def disassemble(cubin: bytes) -> Sass:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = _run("nvdisasm", "-c", file.name)
        usage = _run("cuobjdump", "-res-usage", file.name)
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := LABEL.match(line.strip()):
            labels[label.group(1)] = len(instructions)
        elif match := INSTRUCTION.match(line):
            instructions.append(Instruction(*match.groups()))

    def resource(name: str) -> int:
        match = re.search(rf"{name}:(\d+)", usage)
        if match is None:
            raise ValueError(f"cuobjdump does not report {name}")
        return int(match.group(1))

    return Sass(
        tuple(instructions),
        labels,
        resource("REG"),
        resource("STACK"),
        resource("LOCAL"),
    )
