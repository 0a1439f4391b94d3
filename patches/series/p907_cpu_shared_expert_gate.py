"""A shared expert whose gate is not packed for AMX is gated on the CPU."""

from patches.engine.edits import Insert
from patches.engine.patch import Patch
from patches.engine.place import Find

PATCH = Patch(
    number=907,
    title="[Fix] Gate the shared expert on CPU when its gate is not packed",
    message="""\
## Motivation

`Qwen2MoeSparseMoeBlock` uses `fused_gate_sigmoid_mul_add` whenever the gate has no
packed AMX weight: in float32, or with a hidden size that the packing does not take. The
function launches Triton on CPU tensors and the server dies at the first MoE layer.

## Modifications

Compute the same in PyTorch for CPU tensors, in float32 as the kernel does.

## Accuracy Tests

Against float64, in float32 and bfloat16.
""",
    edits=(
        Insert(
            file="kernels/ops/elementwise/elementwise.py",
            scope="_launch_fused_gate_sigmoid_mul",
            before=Find("assign", "max_warps"),
            code="""
            if hidden_states.is_cpu:
                gate = torch.sigmoid(hidden_states.float() @ gate_weight.float())
                gated = gate.unsqueeze(-1) * shared_output.float()
                output.copy_(output + gated if do_add else gated)
                return
            """,
        ),
    ),
    tests=("unit/kernels/ops/elementwise/test_shared_expert_gate_on_cpu.py",),
)
