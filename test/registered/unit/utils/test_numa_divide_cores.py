"""Each rank of a CPU gets its own cores while there are enough."""

import os
import unittest
from unittest.mock import patch

from sglang.srt.utils import numa_utils
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=5, suite="base-a-test-cpu")


class TestDivideCores(CustomTestCase):
    def cores_of_ranks(self, nodes, num_ranks, bind="all"):
        with (
            patch.object(numa_utils, "get_cpu_ids_by_node", lambda: nodes),
            patch.dict(os.environ, SGLANG_CPU_OMP_THREADS_BIND=bind),
        ):
            return [
                numa_utils.init_threads_binding(numa_index=rank, world_size=num_ranks)
                for rank in range(num_ranks)
            ]

    def test_more_ranks_than_nodes_divide_the_cores_evenly(self):
        for nodes, expected in (
            (["0,1"], ["0", "1"]),
            (["0,1,2,3"], ["0,1", "2,3"]),
            (["0,1,2,3", "4,5,6,7"], ["0,1", "2,3", "4,5", "6,7"]),
            (["0,1,2"], ["0", "1"]),
        ):
            with self.subTest(nodes=nodes):
                self.assertEqual(self.cores_of_ranks(nodes, len(expected)), expected)

    def test_with_fewer_cores_than_ranks_they_are_shared_in_turn(self):
        self.assertEqual(self.cores_of_ranks(["0"], 2), ["0", "0"])
        self.assertEqual(self.cores_of_ranks(["0,1"], 4), ["0", "1", "0", "1"])


if __name__ == "__main__":
    unittest.main()
