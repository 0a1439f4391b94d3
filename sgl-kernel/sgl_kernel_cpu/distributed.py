"""Collectives of the tensor-parallel group, through torch.distributed.

The compiled build keeps a shared-memory segment of its own for them.
"""

from functools import lru_cache

import torch
import torch.distributed as dist

from .registry import kernel

_tensor_parallel: tuple[int, int] | None = None


@kernel(
    "initialize(int size, int rank) -> ()",
    dispatch_key="CompositeExplicitAutograd",
)
def initialize(size: int, rank: int) -> None:
    """Say which tensor-parallel group this process is in.

    Args:
        size: processes in the group.
        rank: this process's place in it.
    """
    global _tensor_parallel
    _tensor_parallel = (size, rank)
    _group.cache_clear()


@lru_cache(maxsize=1)
def _group() -> dist.ProcessGroup:
    """The group of `initialize`: SGLang numbers tensor-parallel ranks consecutively.

    With pipeline stages the world is larger than the group, which is then made on its
    members' first collective; the other processes need not take part.
    """
    world = dist.group.WORLD
    assert world is not None, "torch.distributed is not initialized"
    size, rank = _tensor_parallel or (world.size(), world.rank())
    if size == world.size():
        return world
    first = world.rank() - rank
    group = dist.new_group(
        list(range(first, first + size)), backend="gloo", use_local_synchronization=True
    )
    assert isinstance(group, dist.ProcessGroup)
    return group


@kernel("shm_allreduce(Tensor(a!) data, int reduce_op) -> ()")
def shm_allreduce(data: torch.Tensor, reduce_op: int) -> None:
    """Sum data over the group, in place.

    Args:
        data: any shape, written.
        reduce_op: `int(torch.distributed.ReduceOp.SUM)`; no other is supported.
    """
    if reduce_op != dist.ReduceOp.SUM.value:
        raise RuntimeError(
            f"shm_allreduce only sums; it was given reduce_op {reduce_op}."
        )
    dist.all_reduce(data, group=_group())


def _fake_gather(data: torch.Tensor, dim: int) -> torch.Tensor:
    size = _tensor_parallel[0] if _tensor_parallel else dist.get_world_size()
    return torch.cat([data] * size, dim=dim)


@kernel("shm_allgather(Tensor data, int dim) -> Tensor", fake=_fake_gather)
def shm_allgather(data: torch.Tensor, dim: int) -> torch.Tensor:
    """The group's data, concatenated along dim in rank order."""
    group = _group()
    parts = [torch.empty_like(data) for _ in range(group.size())]
    dist.all_gather(parts, data.contiguous(), group=group)
    return torch.cat(parts, dim=dim)
