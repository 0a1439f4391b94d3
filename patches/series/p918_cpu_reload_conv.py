"""Weights of a model with linear attention can be updated on a CPU."""

from patches.engine.edits import AddImport, Insert
from patches.engine.patch import Patch
from patches.engine.place import Find

AMX = "srt/layers/amx_utils.py"
UNQUANT = "srt/layers/quantization/unquant.py"

PATCH = Patch(
    number=918,
    title="[CPU] Unpack conv weights before weights are updated",
    message="""\
## Motivation

The weight of a causal convolution is replaced by a packed one of two dimensions after
it is loaded. `update_weights_from_disk` then copies three dimensions into two, the
rollback does the same, and the scheduler dies. What the layer was built with, and what
linear attention reads, is the tensor from before.

## Modifications

Give the layer that tensor back before weights are loaded again; loading packs it anew.
""",
    edits=(
        Insert(
            file=AMX,
            scope="_amx_process_weight_after_loading",
            before=Find("assign", "weight_tensor", mentions=("view",)),
            code="""
            # Not an attribute that makes it a parameter of the module again.
            module.__dict__[_LOADED_CONV_WEIGHT] = weight_name, weight_tensor
            """,
        ),
        Insert(
            file=AMX,
            after="_amx_process_weight_after_loading",
            code='''
            _LOADED_CONV_WEIGHT = "loaded_conv_weight"


            def restore_conv_weight(module) -> None:
                """Let loading fill the unpacked weight of a convolution again."""
                loaded = module.__dict__.pop(_LOADED_CONV_WEIGHT, None)
                if loaded is not None:
                    setattr(module, *loaded)
            ''',
        ),
        AddImport(
            file=UNQUANT,
            module="sglang.srt.layers.amx_utils",
            names=("restore_conv_weight",),
        ),
        Insert(
            file=UNQUANT,
            scope="UnquantizedLinearMethod",
            after="process_weights_after_loading",
            code="""
            def restore_weights_before_loading(self, layer: torch.nn.Module) -> None:
                restore_conv_weight(layer)
            """,
        ),
    ),
    tests=("unit/layers/test_conv_weight_is_unpacked_for_updates.py",),
)
