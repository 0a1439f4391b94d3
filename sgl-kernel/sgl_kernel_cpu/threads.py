"""Threads of a scheduler process."""

import os

import torch

from .registry import kernel


@kernel(
    "init_cpu_threads_env(str cpu_ids) -> str",
    dispatch_key="CompositeExplicitAutograd",
)
def init_cpu_threads_env(cpu_ids: str) -> str:
    """Keep this process to some CPUs, with one PyTorch thread for each.

    CPUs that the process may not use are left out; where none is left, it keeps those
    that it has. OMP_NUM_THREADS, where set, bounds the threads.

    Args:
        cpu_ids: CPU numbers and ranges, as in "0,2,4-7".

    Returns:
        One line for the log.
    """
    allowed = os.sched_getaffinity(0)
    cpus = sorted(_parse(cpu_ids) & allowed) or sorted(allowed)
    os.sched_setaffinity(0, cpus)
    limit = os.environ.get("OMP_NUM_THREADS", "")
    num_threads = min(len(cpus), int(limit)) if limit.isdigit() else len(cpus)
    torch.set_num_threads(max(num_threads, 1))
    return (
        f"Process {os.getpid()} runs {torch.get_num_threads()} threads on CPUs "
        f"{','.join(map(str, cpus))}."
    )


def _parse(cpu_ids: str) -> set[int]:
    cpus: set[int] = set()
    for part in cpu_ids.split(","):
        first, _, last = part.strip().partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus
