"""Collectives of real processes over gloo."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch
import torch.distributed as dist

ops = torch.ops.sgl_kernel


def _worker(rank, world_size, group_size, store):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world_size
    )
    try:
        ops.initialize(group_size, rank % group_size)
        total = torch.full((3,), float(rank))
        ops.shm_allreduce(total, int(dist.ReduceOp.SUM))
        gathered = ops.shm_allgather(torch.full((2, 1), float(rank)), 1)
        with pytest.raises(RuntimeError, match="only sums"):
            ops.shm_allreduce(total, int(dist.ReduceOp.MAX))
        return total.tolist(), gathered.tolist()
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("world_size", "group_size"), [(2, 2), (4, 2)])
def test_collectives_stay_within_the_tensor_parallel_group(
    tmp_path, world_size, group_size
):
    """With two pipeline stages, four processes form two groups."""
    context = get_context("fork")
    with ProcessPoolExecutor(world_size, mp_context=context) as pool:
        futures = [
            pool.submit(_worker, rank, world_size, group_size, tmp_path / "store")
            for rank in range(world_size)
        ]
        results = [future.result(timeout=60) for future in futures]
    for rank, (total, gathered) in enumerate(results):
        first = rank - rank % group_size
        group = [float(r) for r in range(first, first + group_size)]
        assert total == [sum(group)] * 3
        assert gathered == [group, group]
