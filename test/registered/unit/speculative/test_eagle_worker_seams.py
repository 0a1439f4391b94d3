"""A worker that derives from the EAGLE worker brings its own draft worker."""

import unittest
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.speculative import eagle_worker_v2
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker, EAGLEWorkerV2

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

SPEC = SimpleNamespace(
    speculative_eagle_topk=1,
    speculative_num_steps=3,
    speculative_num_draft_tokens=4,
    speculative_algorithm="EAGLE",
    speculative_use_rejection_sampling=False,
    speculative_adaptive=False,
)


class OwnTpWorker:
    """Stands for what owns a draft's model runner."""

    def __init__(self, **arguments):
        self.arguments = arguments
        self.model_runner = object()


class OwnDraftWorker(EagleDraftWorker):
    def build_tp_worker(self, **arguments):
        return OwnTpWorker(**arguments)

    def _rebuild_topk1_chain_buffers(self):
        pass

    def _init_dsa_index_share_state(self):
        pass


class OwnWorker(EAGLEWorkerV2):
    draft_worker_class = OwnDraftWorker


class TestEagleWorkerSeams(CustomTestCase):
    def test_both_seams_are_used(self):
        target = MagicMock(random_seed=7)
        with ExitStack() as stack:
            for name, value in (
                ("get_spec", SPEC),
                ("get_device", SimpleNamespace(device="cpu")),
                ("get_schedule", SimpleNamespace(page_size=1)),
                ("get_parallel", MagicMock()),
                ("model_draft_parallel_spec", None),
                ("resolve_draft_parallel_layout", None),
                ("get_pp_stage_load_group", None),
                ("draft_tp_context", nullcontext()),
                ("draft_pp_context", nullcontext()),
                ("speculative_moe_backend_context", nullcontext()),
                ("speculative_moe_a2a_backend_context", nullcontext()),
                ("draft_model_build_scope", nullcontext()),
                ("get_plan_stream", (None, None)),
            ):
                stub = MagicMock(return_value=value)
                stack.enter_context(patch.object(eagle_worker_v2, name, stub))
            worker = OwnWorker(SimpleNamespace(), 0, 0, target)
        draft = worker._draft_worker
        self.assertIsInstance(draft, OwnDraftWorker)
        self.assertIsInstance(draft.draft_worker, OwnTpWorker)
        self.assertIs(draft.draft_runner, draft.draft_worker.model_runner)
        self.assertTrue(draft.draft_worker.arguments["is_draft_worker"])
        self.assertEqual(draft.draft_worker.arguments["random_seed"], 7)

    def test_the_eagle_worker_keeps_its_own(self):
        self.assertIs(EAGLEWorkerV2.draft_worker_class, EagleDraftWorker)
        with patch.object(eagle_worker_v2, "TpModelWorker", OwnTpWorker):
            worker = EagleDraftWorker.build_tp_worker(object(), gpu_id=3)
        self.assertEqual(worker.arguments, {"gpu_id": 3})


if __name__ == "__main__":
    unittest.main()
