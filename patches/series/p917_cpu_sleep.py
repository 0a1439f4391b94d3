"""A server on a CPU survives a request to release its memory."""

from patches.engine.edits import ReplaceExpression
from patches.engine.patch import Patch
from patches.engine.place import Find

PATCH = Patch(
    number=917,
    title="[CPU] Do not ask CUDA to synchronize in release_memory_occupation",
    message="""\
## Motivation

`release_memory_occupation` ends in a synchronize of whatever accelerator PyTorch was
built for. With a CUDA build on a machine without a GPU it raises, the scheduler dies
and the server with it: one request ends them all.

## Modifications

Synchronize the device that the model runs on.
""",
    edits=(
        ReplaceExpression(
            file="srt/managers/scheduler_components/weight_updater.py",
            scope="SchedulerWeightUpdaterManager.release_memory_occupation",
            at=Find("call", "torch.get_device_module"),
            code="torch.get_device_module(self.tp_worker.model_runner.device)",
        ),
    ),
    tests=("unit/managers/test_release_memory_on_cpu.py",),
)
