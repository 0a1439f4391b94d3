import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch

from sgl_kernel_cpu.threads import _parse

ALLOWED = sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("text", "cpus"), [("0", {0}), ("0,2", {0, 2}), ("1-3, 6", {1, 2, 3, 6})]
)
def test_cpu_lists(text, cpus):
    assert _parse(text) == cpus


def _bind(cpu_ids, omp_num_threads):
    os.environ.pop("OMP_NUM_THREADS", None)
    if omp_num_threads is not None:
        os.environ["OMP_NUM_THREADS"] = omp_num_threads
    message = torch.ops.sgl_kernel.init_cpu_threads_env(cpu_ids)
    assert f"{torch.get_num_threads()} threads" in message
    return torch.get_num_threads(), sorted(os.sched_getaffinity(0))


def bound(cpu_ids, omp_num_threads=None):
    """(threads, CPUs) of a process that binds itself to cpu_ids."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        return pool.submit(_bind, cpu_ids, omp_num_threads).result()


def test_a_thread_for_each_cpu_and_no_other_cpu():
    assert bound(str(ALLOWED[0])) == (1, ALLOWED[:1])


def test_cpus_that_are_not_ours_are_left_out():
    assert bound("100000-100003") == (len(ALLOWED), ALLOWED)


def test_omp_num_threads_bounds_the_threads():
    assert bound(",".join(map(str, ALLOWED)), "1") == (1, ALLOWED)
