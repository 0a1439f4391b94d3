"""Run a case in one of the ways that there are without the card, or with one."""

from __future__ import annotations

import functools
from dataclasses import replace

import torch

from nvfp4_proof.cases import Case
from nvfp4_proof.compiler import Compiled, compile_launch
from nvfp4_proof.emulator import Machine, Schedule
from nvfp4_proof.interpreter import interpret

DEFAULT = Schedule()

WAYS = ("interpreter", "emulator-late", "emulator-early")


@functools.cache
def machine(compiled: Compiled) -> Machine:
    return Machine(compiled)


def emulate(case: Case, schedule: Schedule = DEFAULT, arch: int = 120) -> float:
    """Run the compiled kernel of ``case`` on the emulator and return the worst error.

    Raises AssertionError when the answer is wrong or part of the output is not written.
    """
    memory = machine(compile_launch(case.launch, arch)).run(case.launch, schedule)
    for tensor in case.written:
        missing = memory.unwritten(tensor)
        assert not missing, f"{case.name}: {missing} bytes of the output not written"
    return case.check()


def run(case: Case, way: str, schedule: Schedule = DEFAULT) -> float:
    """Run ``case`` and return its worst error. ``way`` is one of WAYS."""
    if way == "interpreter":
        interpret(case.launch)
        return case.check()
    late = {"emulator-late": True, "emulator-early": False}[way]
    return emulate(case, replace(schedule, late_copies=late))


def run_on_device(case: Case, device: torch.device) -> float:
    """Run ``case`` on a GPU: its tensors go there, and come back to be judged."""
    tensors = {
        name: value
        for name, value in case.launch.arguments.items()
        if isinstance(value, torch.Tensor)
    }
    there = {name: value.to(device) for name, value in tensors.items()}
    replace(case.launch, arguments=case.launch.arguments | there).run()
    for name, value in tensors.items():
        value.copy_(there[name])
    return case.check()
