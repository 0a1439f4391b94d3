"""More ranks than NUMA nodes share the cores of a CPU."""

from patches.engine.edits import Insert
from patches.engine.patch import Patch
from patches.engine.place import Find

NUMA = "srt/utils/numa_utils.py"

PATCH = Patch(
    number=916,
    title="[CPU] Divide the cores when there are more ranks than NUMA nodes",
    message="""\
## Motivation

`--tp 2` on a CPU with one NUMA node ends in an assertion unless the user writes
`SGLANG_CPU_OMP_THREADS_BIND` by hand.

## Modifications

Without that variable, and with more ranks than NUMA nodes, the cores are divided evenly
among the ranks. What the variable says, and every other case, stays as it was.
""",
    edits=(
        Insert(
            file=NUMA,
            before="init_threads_binding",
            code='''
            def divide_cores(cpu_ids_by_node: list[str], world_size: int) -> str:
                """Give each rank its share of the cores, as ``0,1|2,3``.

                With fewer cores than ranks, ranks share cores in turn.
                """
                cores = [core for node in cpu_ids_by_node for core in node.split(",")]
                share = max(1, len(cores) // world_size)
                starts = [rank * share % len(cores) for rank in range(world_size)]
                groups = [cores[start : start + share] for start in starts]
                return "|".join(",".join(group) for group in groups)
            ''',
        ),
        Insert(
            file=NUMA,
            scope="init_threads_binding",
            before=Find("if", mentions=("omp_cpuids", "all")),
            code="""
            if omp_cpuids == "all" and world_size > n_numa_node:
                omp_cpuids = divide_cores(cpu_ids_by_node, world_size)
            """,
        ),
    ),
    tests=("unit/utils/test_numa_divide_cores.py",),
)
