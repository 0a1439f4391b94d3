"""The default pools of the CPU hold what requests can use."""

import unittest
from types import SimpleNamespace

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.mem_cache.kv_cache_configurator import (
    CPU_DEFAULT_NUM_REQS,
    KVCacheConfigurator,
)
from sglang.srt.runtime_context import get_context

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

CONTEXT_LEN, STATES_PER_REQUEST, POSSIBLE = 100, 4, 1_000_000


class BareConfigurator(KVCacheConfigurator):
    """A configurator that knows its device and its model only."""

    attn_dp_size = 1
    model_config = SimpleNamespace(context_len=CONTEXT_LEN)

    def __init__(self, device):
        self.device = device

    def _calculate_mamba_ratio(self):
        return STATES_PER_REQUEST


class TestCpuPoolSize(CustomTestCase):
    def check(self, device, max_running_requests, num_tokens, num_slots):
        fields = {"max_running_requests": max_running_requests}
        with get_context().override_server_args(**fields):
            pools = BareConfigurator(device)
            self.assertEqual(pools._bound_tokens_on_cpu(POSSIBLE), num_tokens)
            self.assertEqual(pools._bound_mamba_slots_on_cpu(POSSIBLE), num_slots)
            self.assertEqual(pools._bound_tokens_on_cpu(50), 50)

    def test_by_default_the_pools_hold_a_fixed_number_of_requests(self):
        count = CPU_DEFAULT_NUM_REQS
        self.check("cpu", None, count * CONTEXT_LEN, count * STATES_PER_REQUEST)

    def test_the_pools_hold_the_requests_that_may_run(self):
        self.check("cpu", 8, 8 * CONTEXT_LEN, 8 * STATES_PER_REQUEST)

    def test_elsewhere_the_pools_take_what_they_took(self):
        self.check("cuda", 8, POSSIBLE, POSSIBLE)


if __name__ == "__main__":
    unittest.main()
