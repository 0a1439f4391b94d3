"""Tensor parallelism on the CPU leaves NCCL alone."""

from patches.engine.edits import Insert
from patches.engine.patch import Patch
from patches.engine.place import Find

PATCH = Patch(
    number=910,
    title="[Fix] Do not open NCCL communicators for the CPU",
    message="""\
## Motivation

`PyNcclCommunicator` takes the failure to load libnccl as the sign of a machine without
a GPU. PyTorch's default wheels bring libnccl, so with `--device cpu --tp-size 2` the
library loads, `ncclGetUniqueId` fails, and the server does not start.

## Modifications

Ask the device instead: a communicator for the CPU is disabled, as if NCCL were missing.
""",
    edits=(
        Insert(
            file="srt/distributed/device_communicators/pynccl.py",
            scope="PyNcclCommunicator.__init__",
            before=Find("try"),
            code="""
            if not isinstance(device, int) and torch.device(device).type == "cpu":
                self.available = False
                self.disabled = True
                return
            """,
        ),
    ),
    tests=("unit/distributed/test_pynccl_on_cpu.py",),
)
