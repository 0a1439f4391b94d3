"""The ways in which one weight is stored: plain, or quantised with its companions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sglang.srt.speculative.nextn.safetensors_header import HeadTensor
from sglang.srt.speculative.nextn.stored_shapes import (
    QuantizationSizes,
    Shape,
    Shapes,
    StoredShapes,
)

UNQUANTIZED = "unquantized"

FLOATS = ("BF16", "F16", "F32")
_BYTES = ("U8", "I8")
_E8M0 = ("U8", "F8_E8M0")
_FP8 = ("F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2")


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a scheme: the dtypes and the shapes that it may have."""

    dtypes: tuple[str, ...]
    shapes: Callable[[StoredShapes], Shapes]


@dataclass(frozen=True)
class Scheme:
    """A storage format of one weight.

    Attributes:
        name: short name, as in a quantisation config.
        label: name for people.
        required: tensors without which the weight cannot be read, by suffix.
        optional: tensors that some exporters add.
        methods: `quant_method` values whose checkpoints use the scheme.
    """

    name: str
    label: str
    required: Mapping[str, StoredTensor]
    optional: Mapping[str, StoredTensor] = field(default_factory=dict)
    methods: tuple[str, ...] = ()

    @property
    def is_quantized(self) -> bool:
        return self.name != UNQUANTIZED

    @property
    def tensors(self) -> dict[str, StoredTensor]:
        return {**self.required, **self.optional}


_SCALE = StoredTensor(FLOATS, StoredShapes.scalar)

SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            UNQUANTIZED,
            "not quantized",
            {"weight": StoredTensor(FLOATS, StoredShapes.weight)},
        ),
        # NVIDIA ModelOpt: 4-bit values, one e4m3 scale for 16 of them, one f32 scale.
        Scheme(
            "nvfp4",
            "NVFP4 (modelopt)",
            required={
                "weight": StoredTensor(_BYTES, StoredShapes.half_weight),
                "weight_scale": StoredTensor(_FP8, StoredShapes.one_in_16_columns),
                "weight_scale_2": StoredTensor(("F32",), StoredShapes.scalar),
            },
            optional={
                "input_scale": _SCALE,
                "pre_quant_scale": StoredTensor(FLOATS, StoredShapes.one_a_column),
            },
            methods=("modelopt", "modelopt_fp4", "modelopt_mixed"),
        ),
        # compressed-tensors `nvfp4-pack-quantized`: global scales are reciprocals.
        Scheme(
            "nvfp4-pack-quantized",
            "NVFP4 (compressed-tensors)",
            required={
                "weight_packed": StoredTensor(_BYTES, StoredShapes.half_weight),
                "weight_scale": StoredTensor(_FP8, StoredShapes.one_in_16_columns),
                "weight_global_scale": StoredTensor(("F32",), StoredShapes.scalar),
            },
            optional={"input_global_scale": _SCALE},
            methods=("compressed-tensors",),
        ),
        Scheme(
            "fp8-block",
            "FP8 (block)",
            required={
                "weight": StoredTensor(_FP8, StoredShapes.weight),
                "weight_scale_inv": StoredTensor(FLOATS, StoredShapes.block_grid),
            },
            optional={"input_scale": _SCALE},
            methods=("fp8",),
        ),
        Scheme(
            "fp8",
            "FP8",
            required={
                "weight": StoredTensor(_FP8, StoredShapes.weight),
                "weight_scale": StoredTensor(
                    FLOATS, StoredShapes.scalar_rows_or_blocks
                ),
            },
            optional={"input_scale": _SCALE},
            methods=("fp8", "modelopt", "modelopt_fp8", "compressed-tensors"),
        ),
        Scheme(
            "mxfp8",
            "MXFP8",
            required={
                "weight": StoredTensor(_FP8, StoredShapes.weight),
                "weight_scale": StoredTensor(_E8M0, StoredShapes.one_in_32_columns),
            },
            methods=("mxfp8", "modelopt_mixed"),
        ),
        Scheme(
            "mxfp4",
            "MXFP4",
            required={
                "weight": StoredTensor(_BYTES, StoredShapes.half_weight),
                "weight_scale": StoredTensor(_E8M0, StoredShapes.one_in_32_columns),
            },
            methods=("quark", "mxfp4"),
        ),
        Scheme(
            "int-quantized",
            "INT8",
            required={
                "weight": StoredTensor(("I8",), StoredShapes.weight),
                "weight_scale": StoredTensor(FLOATS, StoredShapes.scalar_or_rows),
            },
            optional={
                "input_scale": _SCALE,
                "input_zero_point": StoredTensor(("I8", "I32"), StoredShapes.scalar),
            },
            methods=("compressed-tensors", "w8a8_int8"),
        ),
        Scheme(
            "pack-quantized",
            "INT4/INT8 (compressed-tensors)",
            required={
                "weight_packed": StoredTensor(
                    ("I32",), StoredShapes.rows_by_packed_columns
                ),
                "weight_scale": StoredTensor(FLOATS, StoredShapes.rows_by_groups),
                "weight_shape": StoredTensor(("I64", "I32"), StoredShapes.pair),
            },
            optional={
                "weight_zero_point": StoredTensor(
                    ("I32",), StoredShapes.packed_rows_by_groups
                ),
                "weight_g_idx": StoredTensor(("I32",), StoredShapes.one_a_column),
            },
            methods=("compressed-tensors",),
        ),
        Scheme(
            "gptq",
            "GPTQ",
            required={
                "qweight": StoredTensor(("I32",), StoredShapes.packed_columns_by_rows),
                "qzeros": StoredTensor(("I32",), StoredShapes.groups_by_packed_rows),
                "scales": StoredTensor(FLOATS, StoredShapes.groups_by_rows),
            },
            optional={"g_idx": StoredTensor(("I32",), StoredShapes.one_a_column)},
            methods=("gptq", "gptq_marlin", "auto-round"),
        ),
        Scheme(
            "awq",
            "AWQ",
            required={
                "qweight": StoredTensor(("I32",), StoredShapes.columns_by_packed_rows),
                "qzeros": StoredTensor(("I32",), StoredShapes.groups_by_packed_rows),
                "scales": StoredTensor(FLOATS, StoredShapes.groups_by_rows),
            },
            methods=("awq", "awq_marlin"),
        ),
    )
}

# Every suffix that a tensor of a quantisable module can have.
SUFFIXES = tuple(
    dict.fromkeys(suffix for scheme in SCHEMES.values() for suffix in scheme.tensors)
)


def allowed_shapes(
    stored: StoredTensor, shape: Shape, sizes: QuantizationSizes
) -> Shapes:
    """Shapes that `stored` may have for a weight of `shape`: [..., out, in] or [size].

    Leading dimensions (packed experts) lead every shape, and a scale for a whole tensor
    becomes one for each expert.
    """
    if len(shape) < 2:
        return (shape,)
    *lead, rows, columns = shape
    shapes = stored.shapes(StoredShapes(rows, columns, sizes))
    return tuple((*lead, *rest) for rest in shapes)


def detect_scheme(
    found: Mapping[str, HeadTensor],
    shape: Shape,
    sizes: QuantizationSizes,
    quant_method: str | None = None,
) -> Scheme:
    """The scheme that the tensors of one module fit best.

    Args:
        found: the module's tensors by suffix.
        shape: of the unquantised weight.
        sizes: block and group sizes to expect.
        quant_method: the checkpoint's; it only decides between equally good fits.

    The choice rests on the tensors: a module with a tensor missing or wrongly shaped
    keeps its scheme, so that the error can say which tensor that is.
    """
    return max(
        SCHEMES.values(),
        key=lambda scheme: _fit(scheme, found, shape, sizes, quant_method),
    )


def _fit(
    scheme: Scheme,
    found: Mapping[str, HeadTensor],
    shape: Shape,
    sizes: QuantizationSizes,
    quant_method: str | None,
) -> tuple[int, bool]:
    score = -sum(suffix not in found for suffix in scheme.required)
    for suffix, tensor in found.items():
        stored = scheme.tensors.get(suffix)
        if stored is None:
            score -= 1
        elif tensor.dtype is None:
            score += 1
        elif tensor.dtype not in stored.dtypes:
            score -= 2
        else:
            score += 1 + (tensor.shape in allowed_shapes(stored, shape, sizes))
    return score, quant_method in scheme.methods
