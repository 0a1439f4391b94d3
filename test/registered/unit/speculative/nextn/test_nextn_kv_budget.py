"""The KV pool of a NEXTN target is sized with the head's layers in it."""

import unittest
from types import SimpleNamespace
from unittest.mock import patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.model_executor.model_runner_components import spec_aux_hidden_state
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

TARGET = SimpleNamespace(num_nextn_predict_layers=None, is_hybrid_swa=False)
HEAD = SimpleNamespace(num_nextn_predict_layers=1, is_hybrid_swa=False)
NO_PATH = SimpleNamespace(
    speculative_draft_model_path=None, speculative_draft_model_revision=None
)


def draft_layers_in_the_budget(is_draft_worker: bool) -> int | None:
    config = spec_aux_hidden_state.SpecAuxHiddenStateConfig()
    with (
        patch.object(spec_aux_hidden_state, "get_spec", lambda: NO_PATH),
        patch.object(spec_aux_hidden_state, "head_model_config", lambda _: HEAD),
    ):
        spec_aux_hidden_state._resolve_eagle_aux_hidden_state(
            config=config,
            server_args=None,
            model_config=TARGET,
            spec_algorithm=SpeculativeAlgorithm.NEXTN,
            is_draft_worker=is_draft_worker,
        )
    return config.eagle_draft_num_layers


class TestNextnKvBudget(CustomTestCase):
    def test_a_target_pays_for_the_heads_layers_without_a_draft_path(self):
        self.assertEqual(draft_layers_in_the_budget(is_draft_worker=False), 1)

    def test_the_head_itself_pays_for_none(self):
        self.assertIsNone(draft_layers_in_the_budget(is_draft_worker=True))


if __name__ == "__main__":
    unittest.main()
