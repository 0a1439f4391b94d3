"""The mamba state of an accepted draft token reaches its request on the CPU."""

from patches.engine.edits import Insert
from patches.engine.patch import Patch
from patches.engine.place import Find

FILE = "kernels/ops/mamba/mamba_state_scatter_triton.py"
LAUNCH = Find("call statement", "_launch_track_mamba_states")

SCATTER_CPU = '''
def _scatter_with_mask_cpu(
    dst: torch.Tensor,
    src: torch.Tensor,
    dst_indices_raw: torch.Tensor,
    step_indices_raw: torch.Tensor,
    src_indices_raw: torch.Tensor | None,
) -> None:
    """The scatters below without Triton: for each valid request ``i``,
    ``dst[:, dst_indices_raw[i]] = src[:, src_indices_raw[i], step_indices_raw[i]]``."""
    dst_rows, steps = dst_indices_raw.long(), step_indices_raw.long()
    src_rows = _prepare_src_rows(src_indices_raw, step_indices_raw).long()
    valid = (steps >= 0) & (steps < src.shape[2])
    valid &= (dst_rows >= 0) & (dst_rows < dst.shape[1])
    valid &= (src_rows >= 0) & (src_rows < src.shape[1])
    dst[:, dst_rows[valid]] = src[:, src_rows[valid], steps[valid]].to(dst.dtype)
'''

TRACK_CPU = '''
def _track_mamba_states_cpu(
    states: torch.Tensor,
    cache_indices: torch.Tensor,
    mamba_track_mask: torch.Tensor,
    mamba_track_indices: torch.Tensor,
    batch_size: int,
    *,
    slot_dim: int,
) -> None:
    """Copy the slots of the tracked rows along ``slot_dim``, freed slots (-1) aside."""
    src_slots = cache_indices[:batch_size].long()
    dst_slots = mamba_track_indices[:batch_size].long()
    tracked = mamba_track_mask[:batch_size].bool() & (src_slots >= 0) & (dst_slots >= 0)
    if tracked.any():
        rows = states.index_select(slot_dim, src_slots[tracked])
        states.index_copy_(slot_dim, dst_slots[tracked], rows)
'''


def call_scatter(function: str, before: Find) -> Insert:
    """Leave a fused scatter for its CPU form before it checks for a GPU."""
    return Insert(
        file=FILE,
        scope=function,
        before=before,
        code="""
        if dst.is_cpu and src.is_cpu:
            _scatter_with_mask_cpu(
                dst, src, dst_indices_raw, step_indices_raw, src_indices_raw
            )
            return
        """,
    )


def call_track(
    function: str,
    conv: str,
    ssm: str,
    slot_dim: int,
    releases: str,
    before: Find,
) -> Insert:
    """Leave a fused track for its CPU form."""
    return Insert(
        file=FILE,
        releases=releases,
        scope=function,
        before=before,
        code=f"""
        if {conv}.is_cpu:
            for states in ({conv}, {ssm}):
                _track_mamba_states_cpu(
                    states,
                    cache_indices,
                    mamba_track_mask,
                    mamba_track_indices,
                    batch_size,
                    slot_dim={slot_dim},
                )
            return
        """,
    )


PATCH = Patch(
    number=901,
    title="[Fix] Scatter and track mamba states on CPU",
    message="""\
## Motivation

`scatter_mamba_states_after_mtp_verify` and the `track_mamba_states_*` helpers only have
Triton kernels. On the CPU engine the first verify of a hybrid model (Qwen3-Next,
Qwen3.5) raises, so no speculative algorithm can serve one, and prefix caching with
`--mamba-radix-cache-strategy extra_buffer` cannot snapshot a state.

## Modifications

Give each function a PyTorch branch for CPU tensors, with the kernels' masking rules:
negative or out-of-range rows and steps are skipped, any strides of the source are
followed, and values are cast to the destination's dtype.

## Accuracy Tests

States and tracked slots bit for bit against a loop over rows.
""",
    edits=(
        Insert(file=FILE, after="_prepare_src_rows", code=SCATTER_CPU),
        Insert(file=FILE, before="track_mamba_states_if_needed", code=TRACK_CPU),
        call_track(
            "track_mamba_states_if_needed",
            "conv_states",
            "ssm_states",
            0,
            releases=">=0.5.23",
            before=LAUNCH,
        ),
        call_track(
            "track_mamba_states_all_layers",
            "conv_states_pool",
            "ssm_states_pool",
            1,
            releases=">=0.5.23",
            before=LAUNCH,
        ),
        # Before 0.5.23 each function launched a kernel of its own.
        call_track(
            "track_mamba_states_if_needed",
            "conv_states",
            "ssm_states",
            0,
            releases="<0.5.23",
            before=Find("assign", "conv_state_numel_per_row"),
        ),
        call_track(
            "track_mamba_states_all_layers",
            "conv_states_pool",
            "ssm_states_pool",
            1,
            releases="<0.5.23",
            before=Find("assign", "num_layers"),
        ),
        call_scatter(
            "fused_mamba_state_scatter_with_mask",
            Find("if", mentions=("is_cuda", "is_xpu")),
        ),
        call_scatter(
            "fused_conv_window_scatter_with_mask",
            Find("if", mentions=("is_cuda", "is_xpu")),
        ),
        # The multi-type kernel takes bfloat16 pairs on any device.
        Insert(
            file=FILE,
            scope="_conv_multi_eligible",
            before=Find("assign", "layers"),
            code="""
            if pairs[0][0].is_cpu:
                return False
            """,
        ),
    ),
    tests=("unit/kernels/ops/mamba/test_mamba_state_scatter_on_cpu.py",),
)
