"""Host memory is pinned only where the platform can pin it."""

from patches.engine.edits import AddImport, Insert, ReplaceExpression
from patches.engine.patch import Patch
from patches.engine.place import Find

COMMON = "srt/utils/common.py"
SCHEDULE_BATCH = "srt/managers/schedule_batch.py"
LORA_LAYERS = "srt/lora/layers.py"
LORA_TORCH = "srt/lora/backend/torch_backend.py"
LORA_ADAPTER = "srt/lora/lora.py"
ERNIE = "srt/multimodal/processors/ernie45_vl.py"

UTILS = "sglang.srt.utils.common"


def pin_calls(file: str, sites: int, scope: str = "") -> ReplaceExpression:
    """Turn ``tensor.pin_memory()`` into ``maybe_pin_memory(tensor)``."""
    return ReplaceExpression(
        file=file,
        scope=scope,
        at=Find("method call", "pin_memory"),
        code="maybe_pin_memory(__receiver__)",
        sites=sites,
    )


def pin_arguments(
    file: str, sites: int, scope: str = "", releases: str = ""
) -> ReplaceExpression:
    """Turn ``pin_memory=True`` into a question to the platform."""
    return ReplaceExpression(
        file=file,
        scope=scope,
        releases=releases,
        at=Find("keyword", "pin_memory"),
        code="is_pin_memory_available()",
        sites=sites,
    )


PATCH = Patch(
    number=904,
    title="[Fix] Do not pin host memory on platforms that cannot",
    message="""\
## Motivation

`ScheduleBatch.prepare_for_decode` pins the mamba track mask unconditionally, so the
first decode step of a hybrid model raises on a machine without a GPU. The same call is
in the LoRA layers, the torch_native LoRA backend and the ERNIE video processor, all
reachable with `--device cpu`.

## Modifications

Ask `is_pin_memory_available()` in each, through a small helper `maybe_pin_memory`.
""",
    edits=(
        Insert(
            file=COMMON,
            after="is_pin_memory_available",
            code='''
            def maybe_pin_memory(tensor: torch.Tensor) -> torch.Tensor:
                """A pinned copy of a host tensor where the platform can pin memory,
                else the tensor itself."""
                return tensor.pin_memory() if is_pin_memory_available() else tensor
            ''',
        ),
        AddImport(file=SCHEDULE_BATCH, module=UTILS, names=("maybe_pin_memory",)),
        pin_calls(SCHEDULE_BATCH, 1, scope="ScheduleBatch.prepare_for_decode"),
        pin_arguments(
            SCHEDULE_BATCH,
            1,
            scope="set_mamba_track_indices_from_reqs",
            releases="<0.5.23",
        ),
        AddImport(
            file=LORA_LAYERS,
            module=UTILS,
            names=("is_pin_memory_available", "maybe_pin_memory"),
            after="sglang.srt.runtime_context",
        ),
        pin_arguments(LORA_LAYERS, 5),
        pin_calls(LORA_LAYERS, 1),
        AddImport(
            file=LORA_TORCH,
            module=UTILS,
            names=("is_pin_memory_available", "maybe_pin_memory"),
            after="sglang.srt.model_executor.forward_batch_info",
        ),
        pin_arguments(LORA_TORCH, 3),
        pin_calls(LORA_TORCH, 4),
        AddImport(
            file=LORA_ADAPTER,
            module=UTILS,
            names=("maybe_pin_memory",),
            after="sglang.srt.model_loader.loader",
        ),
        pin_calls(LORA_ADAPTER, 3),
        AddImport(
            file=ERNIE,
            module=UTILS,
            names=("maybe_pin_memory",),
            after="sglang.srt.utils",
        ),
        pin_calls(ERNIE, 2),
    ),
    tests=("unit/utils/test_maybe_pin_memory.py",),
)
