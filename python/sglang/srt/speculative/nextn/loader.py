"""Builds the head beside a loaded target and fills it from the target's checkpoint."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import torch
from torch import nn

from sglang.srt.arg_groups.launch_error import LaunchError
from sglang.srt.configs.device_config import DeviceConfig
from sglang.srt.configs.load_config import LoadConfig, LoadFormat
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.layers.layer_boundary.stage import check_stage_producers
from sglang.srt.model_loader.loader import (
    BaseModelLoader,
    DefaultModelLoader,
    _get_quantization_config,
    build_scope,
)
from sglang.srt.model_loader.utils import set_default_torch_dtype
from sglang.srt.model_loader.weight_utils import initialize_dummy_weights
from sglang.srt.runtime_context import get_model, get_spec
from sglang.srt.speculative.nextn.head import MTPHead, SharedTables
from sglang.srt.speculative.nextn.head_config import read_head_config
from sglang.srt.speculative.nextn.head_plan import HeadPlan, plan_head
from sglang.srt.speculative.nextn.head_quantization import head_quant_config
from sglang.srt.speculative.nextn.local_model import find_local_model
from sglang.srt.speculative.nextn.weights import iterate_head_weights
from sglang.srt.utils.common import log_info_on_rank0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedHead:
    """What a load did, for the start-up line and for server info."""

    num_layers: int
    num_tensors: int
    num_bytes: int
    num_shards_opened: int
    num_shards: int
    quantization: str
    seconds: float


def head_loader_of(target: nn.Module) -> type[BaseModelLoader]:
    """Return a loader class, for ``LoadConfig.load_format``, bound to ``target``."""

    class HeadLoader(BaseModelLoader):
        """Loads the MTP head of one target model."""

        def download_model(self, model_config: ModelConfig) -> None:
            """The target's own load has downloaded the checkpoint."""

        def load_model(
            self, *, model_config: ModelConfig, device_config: DeviceConfig
        ) -> nn.Module:
            return load_head(target, model_config, self.load_config, device_config)

    return HeadLoader


def load_head(
    target: nn.Module,
    model_config: ModelConfig,
    load_config: LoadConfig,
    device_config: DeviceConfig,
) -> MTPHead:
    """Build the head of ``target`` and fill every parameter of it exactly once.

    Args:
        model_config: the head's, from ``head_model_config``.

    Raises:
        CheckpointError: a file of the checkpoint cannot be understood.
        IncompleteHeadError: the head is absent, incomplete or not as configured.
        LaunchError: the head has more than one layer.
    """
    started = time.perf_counter()
    is_dummy = get_model().load_format == LoadFormat.DUMMY
    plan = None if is_dummy else _plan(model_config)
    device = torch.device(device_config.device)
    with set_default_torch_dtype(model_config.dtype), device:
        head = _build(target, model_config, load_config, plan)
    if plan is None:
        initialize_dummy_weights(head)
    else:
        head.load_weights(
            iterate_head_weights(
                plan.checkpoint, disable_mmap=get_model().weight_loader_disable_mmap
            )
        )
    DefaultModelLoader.postprocess_weights(head, device)
    head.loaded = _summary(plan, head, time.perf_counter() - started)
    _log(head.loaded)
    return head.eval()


def _build(
    target: nn.Module,
    model_config: ModelConfig,
    load_config: LoadConfig,
    plan: HeadPlan | None,
) -> MTPHead:
    quant_config = _quant_config(model_config, load_config, plan)
    hf_config = model_config.hf_config
    with build_scope(MTPHead, hf_config, quant_config) as shared_experts:
        head = MTPHead(
            hf_config,
            quant_config,
            SharedTables.of(target),
            plan.num_layers if plan else _configured_layers(model_config),
        )
        check_stage_producers(head)
    head.shared_experts_config = shared_experts
    return head


def _plan(model_config: ModelConfig) -> HeadPlan:
    path = find_local_model(model_config.model_path, model_config.revision)
    plan = plan_head(path or model_config.model_path, model_config.hf_config)
    if plan.num_layers > 1:
        raise LaunchError(
            f"{plan.checkpoint.root}: the head has {plan.num_layers} MTP layers, which "
            "its files told only after they were downloaded. Start again: NEXTN then "
            "becomes EAGLE, which repeats the first."
        )
    for warning in plan.checkpoint.warnings:
        logger.warning("MTP head: %s", warning)
    for disagreement in plan.quantization.disagreements:
        logger.warning("MTP head: %s. The tensors decide.", disagreement)
    return plan


def _configured_layers(model_config: ModelConfig) -> int:
    return read_head_config(model_config.hf_config).num_layers or 1


def _quant_config(
    model_config: ModelConfig, load_config: LoadConfig, plan: HeadPlan | None
):
    if plan is None or not plan.quantization.any_quantized:
        return None
    return head_quant_config(
        _get_quantization_config(model_config, load_config), plan.quantization
    )


def _summary(plan: HeadPlan | None, head: MTPHead, seconds: float) -> LoadedHead:
    checkpoint = plan.checkpoint if plan else None
    return LoadedHead(
        num_layers=len(head.model.layers),
        num_tensors=len(checkpoint.tensors) if checkpoint else 0,
        num_bytes=sum(p.numel() * p.element_size() for p in head.parameters()),
        num_shards_opened=len(checkpoint.head_shards) if checkpoint else 0,
        num_shards=len(checkpoint.shards) if checkpoint else 0,
        quantization=str(plan.quantization) if plan else "dummy weights",
        seconds=seconds,
    )


def _log(loaded: LoadedHead) -> None:
    plural = "" if loaded.num_layers == 1 else "s"
    log_info_on_rank0(
        logger,
        f"NEXTN native: MTP head of {loaded.num_layers} layer{plural}, "
        f"{loaded.num_tensors} tensors, {loaded.num_bytes / 2**20:.1f} MiB "
        f"({loaded.quantization}), {loaded.num_shards_opened} of {loaded.num_shards} "
        f"shards opened in {loaded.seconds:.2f} s; embed_tokens, lm_head and rotary "
        f"tables shared with the target; steps={get_spec().speculative_num_steps}.",
    )
