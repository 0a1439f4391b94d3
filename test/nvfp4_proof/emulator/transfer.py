"""Loads, stores, asynchronous copies and atomics."""

from __future__ import annotations

import re

import numpy as np

from nvfp4_proof.emulator.batch import UNSIGNED, AsyncCopy, Batch, Unsupported, vector
from nvfp4_proof.emulator.parse import Instruction
from nvfp4_proof.emulator.registry import executes

Array = np.ndarray

ADDRESS = re.compile(r"^\[\s*([%\w]+)\s*(?:\+\s*(-?\w+))?\s*\]$")


def address(batch: Batch, operand: str, width: int) -> Array:
    """uint64 [C, T] of an operand like [%rd1+16]; shared addresses are 32 bits wide."""
    match = ADDRESS.match(operand)
    if match is None:
        raise Unsupported(f"address {operand} is not emulated")
    base, offset = match.groups()
    value = batch.bits(base, width)
    with np.errstate(over="ignore"):
        value = value + UNSIGNED[width](int(offset or "0", 0) % (1 << width))
    return batch.everywhere(value.astype(np.uint64))


def _spread(batch: Batch, active: Array | None) -> Array | None:
    return None if active is None else batch.everywhere(active)


def _element_bytes(instruction: Instruction) -> int:
    return int(instruction.modifiers[-1].lstrip("bfsu")) // 8


@executes("ld.param")
def load_parameter(batch: Batch, instruction: Instruction) -> None:
    destination, source = instruction.operands
    number = batch.program.parameters.index(source.strip("[]"))
    width = 8 * _element_bytes(instruction)
    batch.write(destination, batch.parameters[number].astype(UNSIGNED[width]))


@executes("ld.global", "ld.shared", "ld.shared::cta")
def load(batch: Batch, instruction: Instruction) -> None:
    destinations = vector(instruction.operands[0])
    size = _element_bytes(instruction)
    active = _spread(batch, batch.active(instruction))
    is_global = "global" in instruction.modifiers
    addresses = address(batch, instruction.operands[1], 64 if is_global else 32)
    memory = batch.memory if is_global else batch.shared
    data = memory.load(addresses, size * len(destinations), active, str(instruction))
    words: Array = np.ascontiguousarray(data).view(UNSIGNED[8 * size])
    for number, register in enumerate(destinations):
        batch.write(register, np.ascontiguousarray(words[..., number]), active)


@executes("st.global", "st.shared", "st.shared::cta")
def store(batch: Batch, instruction: Instruction) -> None:
    size = _element_bytes(instruction)
    words = [
        batch.everywhere(batch.bits(source, 8 * size))
        for source in vector(instruction.operands[1])
    ]
    data = np.stack(words, axis=-1).view(np.uint8)
    active = _spread(batch, batch.active(instruction))
    is_global = "global" in instruction.modifiers
    addresses = address(batch, instruction.operands[0], 64 if is_global else 32)
    memory = batch.memory if is_global else batch.shared
    memory.store(addresses, data, active, str(instruction))


@executes("cp.async")
def start_copy(batch: Batch, instruction: Instruction) -> None:
    """Copy size bytes; where the optional source size is 0, zeros instead."""
    target, source, size_text, *rest = instruction.operands
    size = int(size_text, 0)
    active = _spread(batch, batch.active(instruction))
    reads = active
    if rest:
        source_size = batch.everywhere(batch.bits(rest[0], 32))
        full = source_size == size
        if not (full | (source_size == 0)).all():
            raise Unsupported(f"{instruction}: partial copies are not emulated")
        reads = full if active is None else full & active
    data = batch.memory.load(address(batch, source, 64), size, reads, str(instruction))
    copy = AsyncCopy(address(batch, target, 32), data, active)
    if batch.late_copies:
        batch.shared.forget(copy.addresses, size, copy.active)
        batch.uncommitted.append(copy)
    else:
        batch.shared.store(copy.addresses, copy.values, copy.active, str(instruction))


@executes("cp.async.commit_group")
def commit_copies(batch: Batch, instruction: Instruction) -> None:
    batch.committed.append(batch.uncommitted)
    batch.uncommitted = []


@executes("cp.async.wait_group")
def wait_for_copies(batch: Batch, instruction: Instruction) -> None:
    while len(batch.committed) > int(instruction.operands[0], 0):
        for copy in batch.committed.pop(0):
            batch.shared.store(copy.addresses, copy.values, copy.active, "cp.async")


@executes("atom.global")
def atomic(batch: Batch, instruction: Instruction) -> None:
    """Read, combine and write, one thread after the other in the order of the batch."""
    operation, kind = instruction.modifiers[-2:]
    if operation not in ("add", "max"):
        raise Unsupported(f"{instruction.opcode} is not emulated")
    width = int(kind[1:])
    destination, target, source = instruction.operands
    addresses = address(batch, target, 64)
    values = batch.everywhere(batch.bits(source, width)).view(
        f"{_sign(kind)}{width // 8}"
    )
    active = batch.active(instruction)
    chosen = batch.everywhere(np.ones((1, 1), bool) if active is None else active)
    old: Array = np.zeros(batch.shape, UNSIGNED[width])
    for place in np.argwhere(chosen):
        block, thread = place
        one = (slice(block, block + 1), slice(thread, thread + 1))
        where = addresses[one]
        before = batch.memory.load(where, width // 8, None, str(instruction))
        before = before.view(values.dtype)[..., 0]
        with np.errstate(over="ignore"):
            if operation == "add":
                after = before + values[one]
            else:
                after = np.maximum(before, values[one])
        data = np.ascontiguousarray(after)[..., None].view(np.uint8)
        batch.memory.store(where, data, None, str(instruction))
        old[one] = before.view(UNSIGNED[width])
    batch.write(destination, old, active)


def _sign(kind: str) -> str:
    return "i" if kind[0] == "s" else "u"
