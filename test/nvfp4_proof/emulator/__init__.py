"""An emulator of the PTX that Triton emits for SM12x.

It runs the compiled kernel itself, so it sees layouts, pipelines, predicates and masks
as the device would. It reports reads and writes out of bounds, reads of bytes that
nobody has written, and races between the warps of a block.
"""

from nvfp4_proof.emulator.batch import EmulationError, Unsupported
from nvfp4_proof.emulator.machine import Machine, Schedule
from nvfp4_proof.emulator.memory import MemoryFault

__all__ = ["EmulationError", "Machine", "MemoryFault", "Schedule", "Unsupported"]
