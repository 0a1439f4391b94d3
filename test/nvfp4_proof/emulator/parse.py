"""PTX text to a list of instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

REGISTER_BITS = {"pred": 1, "b8": 8, "b16": 16, "b32": 32, "b64": 64}
FLOAT_AS_BITS = {"f32": "b32", "f64": "b64", "u32": "b32", "u64": "b64", "s32": "b32"}

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
DIRECTIVE_LINE = re.compile(r"^\s*\.(loc|file|pragma)\b.*$", re.M)
LABEL = re.compile(r"^(\$?[\w$]+):")
STATEMENT = re.compile(r"^(?:@(!?)([%\w]+)\s+)?([a-z][\w.:]*)\s*(.*)$", re.S)
REGISTER_LIST = re.compile(r"^\.reg\s+\.(\w+)\s+(.*)$", re.S)
NUMBERED = re.compile(r"^(%\w+)<(\d+)>$")


class ParseError(ValueError):
    """PTX that this parser does not read."""


@dataclass(frozen=True)
class Instruction:
    """One PTX instruction, e.g. ``@!%p1 add.s32 %r1, %r2, 3``."""

    opcode: str
    operands: tuple[str, ...]
    guard: str | None = None
    guard_negated: bool = False
    index: int = 0

    @cached_property
    def name(self) -> str:
        """The opcode up to its first dot."""
        return self.opcode.split(".", 1)[0]

    @cached_property
    def modifiers(self) -> list[str]:
        return self.opcode.split(".")[1:]

    def __str__(self) -> str:
        guard = f"@{'!' * self.guard_negated}{self.guard} " if self.guard else ""
        return f"#{self.index} {guard}{self.opcode} {', '.join(self.operands)}"


@dataclass
class Program:
    """One kernel."""

    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    register_bits: dict[str, int] = field(default_factory=dict)
    numbered_bits: dict[str, int] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    threads: int = 0

    def bits(self, register: str) -> int:
        """Width of a register as declared."""
        if register in self.register_bits:
            return self.register_bits[register]
        prefix = register.rstrip("0123456789")
        if prefix in self.numbered_bits:
            return self.numbered_bits[prefix]
        raise ParseError(f"register {register} is not declared")

    def is_register(self, operand: str) -> bool:
        return (
            operand in self.register_bits
            or operand.rstrip("0123456789") in self.numbered_bits
        )


def split_operands(text: str) -> tuple[str, ...]:
    """Operands separated by commas outside of braces and brackets."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "{[") - (character in "}]")
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    if current.strip():
        parts.append(current.strip())
    return tuple(parts)


def parse(ptx: str) -> Program:
    """The only kernel in ``ptx``, as Triton writes it."""
    program = Program()
    text = DIRECTIVE_LINE.sub("", COMMENT.sub("", ptx))
    header, brace, body = text[text.index(".visible .entry") :].partition("{")
    if not brace:
        raise ParseError("kernel without a body")
    program.parameters = re.findall(r"\w+_param_\d+", header)
    threads = re.search(r"\.reqntid\s+(\d+)", header)
    if threads is None:
        raise ParseError("kernel without .reqntid")
    program.threads = int(threads.group(1))
    body = body.split(".section")[0]
    for statement in body.split(";"):
        _add_statement(program, statement.strip())
    return program


def _add_statement(program: Program, statement: str) -> None:
    # A statement starts with an opcode, so leading braces only open and close scopes.
    statement = statement.lstrip("{} \t\n")
    while label := LABEL.match(statement):
        program.labels[label.group(1)] = len(program.instructions)
        statement = statement[label.end() :].lstrip("{} \t\n")
    if not statement:
        return
    declaration = REGISTER_LIST.match(statement)
    if declaration:
        _declare(program, *declaration.groups())
        return
    match = STATEMENT.match(statement)
    if match is None:
        raise ParseError(f"cannot read {statement!r}")
    negated, guard, opcode, operands = match.groups()
    program.instructions.append(
        Instruction(
            opcode=opcode,
            operands=split_operands(" ".join(operands.split())),
            guard=guard,
            guard_negated=negated == "!",
            index=len(program.instructions),
        )
    )


def _declare(program: Program, kind: str, names: str) -> None:
    bits = REGISTER_BITS[FLOAT_AS_BITS.get(kind, kind)]
    for name in (part.strip() for part in names.split(",")):
        numbered = NUMBERED.match(name)
        table = program.numbered_bits if numbered else program.register_bits
        key = numbered.group(1) if numbered else name
        # Blocks of inline assembly declare the same names again in scopes of their own.
        if table.setdefault(key, bits) != bits:
            raise ParseError(f"register {key} is declared with two widths")
