"""The draft side of NEXTN: a runner whose model is the head of the target."""

from __future__ import annotations

import contextlib
from typing import Any

from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.runtime_context import get_schedule
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker
from sglang.srt.speculative.nextn.loader import head_loader_of
from sglang.srt.speculative.nextn.model_config import head_model_config


class HeadRunner(ModelRunner):
    """Runs the head; its model is built from the target's, which is loaded already."""

    def __init__(self, target_runner: ModelRunner, **kwargs: Any):
        self.target_runner = target_runner
        super().__init__(**kwargs)

    def load_model(self) -> None:
        self.draft_load_format = head_loader_of(self.target_runner.model)
        super().load_model()

    def _load_format_scope(self, load_format: Any) -> contextlib.AbstractContextManager:
        # What is published stays the target's format: the head reads its files.
        return contextlib.nullcontext()


class HeadWorker(TpModelWorker):
    """Owns the head's runner; resolves no model configuration and no tokenizer."""

    def __init__(self, target_worker: TpModelWorker, **kwargs: Any):
        self.target_runner = target_worker.model_runner
        super().__init__(**kwargs)

    def _init_model_config(self) -> None:
        self.model_config = head_model_config(self.target_runner.model_config)

    def _init_model_runner(self) -> None:
        self._model_runner = HeadRunner(
            self.target_runner,
            model_config=self.model_config,
            mem_fraction_static=get_schedule().mem_fraction_static,
            gpu_id=self.gpu_id,
            nccl_port=self.nccl_port,
            server_args=self.server_args,
            is_draft_worker=True,
            req_to_token_pool=self.req_to_token_pool,
            token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
            memory_pool_config=self.memory_pool_config,
            draft_attention_backend=self.draft_attention_backend,
            load_group=self.load_group,
        )


class NextnDraftWorker(EagleDraftWorker):
    """Drafts and extends with the head; graph capture and trees are upstream's."""

    def build_tp_worker(self, **kwargs: Any) -> TpModelWorker:
        return HeadWorker(self.target_worker, **kwargs)
