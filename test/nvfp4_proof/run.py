"""Run a case in one of the ways that there are without the card, or with one."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

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


def emulate(
    cases: Sequence[Case], schedule: Schedule = DEFAULT, arch: int = 120
) -> None:
    """Run the one compiled kernel of ``cases`` on the emulator.

    Raises AssertionError when part of an output is not written.
    """
    compiled = compile_launch(cases[0].launch, arch)
    launches = [case.launch for case in cases]
    memory = machine(compiled).run_together(launches, schedule)
    for case in cases:
        for tensor in case.written:
            missing = memory.unwritten(tensor)
            assert not missing, f"{case.name}: {missing} bytes not written"


def run(case: Case, way: str) -> float:
    """Run ``case`` and return its worst error. ``way`` is one of WAYS."""
    return run_all([case], way)[0]


def run_all(cases: Iterable[Case], way: str) -> list[float]:
    """Run cases, those of one compiled kernel together; the worst error of each."""
    together: dict[Any, list[Case]] = {}
    for case in cases:
        launch = case.launch
        constants = tuple(launch.constants.items())
        shape = (launch.num_warps, launch.num_stages)
        together.setdefault((launch.kernel, constants, *shape), []).append(case)
    for group in together.values():
        if way == "interpreter":
            interpret(*(case.launch for case in group))
        else:
            late = {"emulator-late": True, "emulator-early": False}[way]
            emulate(group, Schedule(late_copies=late))
    return [case.check() for group in together.values() for case in group]


def run_on_device(case: Case, device: torch.device) -> float:
    """Run ``case`` on a GPU: its tensors go there, and come back to be judged."""
    tensors = {
        name: value
        for name, value in case.launch.arguments.items()
        if isinstance(value, torch.Tensor)
    }
    there = {name: value.to(device) for name, value in tensors.items()}
    replace(case.launch, arguments={**case.launch.arguments, **there}).run()
    for name, value in tensors.items():
        value.copy_(there[name])
    return case.check()
