"""What a compiled kernel costs, and whether it may ship."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from nvfp4_proof.compiler import Compiled
from nvfp4_proof.sass import MMA_PREFIXES, disassemble
from sgl_kernel_nvfp4.config import Device
from sgl_kernel_nvfp4.policy.choose import RESERVED_SHARED_BYTES
from sgl_kernel_nvfp4.policy.device import GB10, RTX_PRO_6000

DEVICES: dict[int, Device] = {120: RTX_PRO_6000, 121: GB10}

NATIVE_MMA = (
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
)

REGISTERS_PER_MULTIPROCESSOR = 65_536
WARPS_PER_MULTIPROCESSOR = 48
BLOCKS_PER_MULTIPROCESSOR = 24
REGISTER_GRANULE = 256
"""Registers are given to a warp in units of this many."""


@dataclass(frozen=True)
class Facts:
    """Numbers from the cubin. Loop numbers are for one turn of the main loop."""

    name: str
    arch: int
    registers: int
    spills: int
    shared_bytes: int
    warps: int
    blocks_per_multiprocessor: int
    instructions: int
    loop_instructions: int
    loop_mma: int
    native_mma: bool
    loop_loads_16: int
    loop_loads_narrow: int
    loop_plain_loads: int
    loop_barriers: int

    @property
    def instructions_per_mma(self) -> float:
        return self.loop_instructions / max(self.loop_mma, 1)


def occupancy(registers: int, shared: int, warps: int, device: Device) -> int:
    """Blocks that fit on a multiprocessor at once."""
    per_warp = -(-registers * 32 // REGISTER_GRANULE) * REGISTER_GRANULE
    by_registers = REGISTERS_PER_MULTIPROCESSOR // per_warp // warps
    by_shared = device.shared_per_multiprocessor // (shared + RESERVED_SHARED_BYTES)
    by_warps = WARPS_PER_MULTIPROCESSOR // warps
    return min(by_registers, by_shared, by_warps, BLOCKS_PER_MULTIPROCESSOR)


@functools.cache
def inspect(compiled: Compiled) -> Facts:
    """The facts about a compiled kernel."""
    sass = disassemble(compiled.cubin)
    opcodes = sass.opcodes()
    loop = [instruction.opcode for instruction in sass.main_loop()]

    def count(*prefixes: str) -> int:
        return sum(opcode.startswith(prefixes) for opcode in loop)

    copies = [opcode for opcode in loop if opcode.startswith("LDGSTS")]
    wide = sum(".128" in opcode for opcode in copies)
    mma = [opcode for opcode in loop if opcode.startswith(MMA_PREFIXES)]
    in_local_memory = sum(n for o, n in opcodes.items() if o.startswith(("STL", "LDL")))
    return Facts(
        name=compiled.name,
        arch=compiled.arch,
        registers=sass.registers,
        spills=in_local_memory + sass.stack + sass.local,
        shared_bytes=compiled.shared_bytes,
        warps=compiled.num_warps,
        blocks_per_multiprocessor=occupancy(
            sass.registers,
            compiled.shared_bytes,
            compiled.num_warps,
            DEVICES[compiled.arch],
        ),
        instructions=len(sass.instructions),
        loop_instructions=len(loop),
        loop_mma=len(mma),
        native_mma=bool(mma)
        and all(o.startswith("OMMA") and o.endswith("4X") for o in mma)
        and NATIVE_MMA in compiled.ptx,
        loop_loads_16=wide,
        loop_loads_narrow=len(copies) - wide,
        loop_plain_loads=count("LDG."),
        loop_barriers=count("BAR"),
    )


@dataclass(frozen=True)
class Limits:
    """What the main loop of a GEMM kernel may cost."""

    instructions_per_mma: float
    code_bytes: int
    """Bytes of codes (and 16-bit activations) that one turn loads: 16 at a time."""
    native: bool = True


def violations(facts: Facts, limits: Limits) -> list[str]:
    """Why the kernel may not ship; empty if it may."""
    found = []
    budget = DEVICES[facts.arch].shared_per_block
    if limits.native and not facts.native_mma:
        found.append("the main loop does not use native mxf4nvf4 MMA")
    if facts.spills:
        found.append(f"{facts.spills} bytes or instructions of spills")
    if facts.shared_bytes > budget:
        found.append(f"{facts.shared_bytes} bytes of shared memory, of {budget}")
    if facts.blocks_per_multiprocessor < 1:
        found.append("no block fits on a multiprocessor")
    if facts.instructions_per_mma > limits.instructions_per_mma:
        found.append(
            f"{facts.instructions_per_mma:.1f} instructions for each MMA, more than "
            f"{limits.instructions_per_mma}"
        )
    if facts.loop_loads_16 * 16 * 32 * facts.warps < limits.code_bytes:
        found.append(
            f"{facts.loop_loads_16} loads of 16 bytes a thread do not cover "
            f"{limits.code_bytes} bytes"
        )
    if facts.loop_plain_loads:
        found.append(f"{facts.loop_plain_loads} loads outside of the pipeline")
    if facts.loop_barriers > 2:
        found.append(f"{facts.loop_barriers} barriers in the main loop")
    return found
