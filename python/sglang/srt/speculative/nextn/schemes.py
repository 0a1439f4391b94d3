"""The ways in which one weight is stored: plain, or quantised with its companions.

Shapes are those of published checkpoints before any repacking: [out, in] weights, FP4
values packed two to a byte along `in`, scales by block of `in`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sglang.srt.speculative.nextn.safetensors_header import HeadTensor

Shape = tuple[int, ...]

FLOATS = ("BF16", "F16", "F32")
_BYTES = ("U8", "I8")
_E8M0 = ("U8", "F8_E8M0")
_FP8 = ("F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2")


@dataclass(frozen=True)
class QuantizationSizes:
    """Sizes that a quantisation config fixes; the defaults are what exporters use."""

    group_sizes: tuple[int, ...] = (128, 64, 32, -1)
    bits: tuple[int, ...] = (4, 8)
    block_size: tuple[int, int] = (128, 128)


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a scheme: the dtypes and the shapes that it may have."""

    dtypes: tuple[str, ...]
    shapes: Callable[[int, int, QuantizationSizes], tuple[Shape, ...]]


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


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _weight(out, in_, sizes):
    return ((out, in_),)


def _half_weight(out, in_, sizes):
    return ((out, in_ // 2),)


def _scalar(out, in_, sizes):
    return ((), (1,))


def _blocks_of(width: int):
    return lambda out, in_, sizes: ((out, in_ // width),)


def _block_grid(out, in_, sizes):
    rows, columns = sizes.block_size
    return ((_ceil_div(out, rows), _ceil_div(in_, columns)),)


def _per_tensor_channel_or_block(out, in_, sizes):
    return ((), (1,), (out,), (out, 1), *_block_grid(out, in_, sizes))


def _per_tensor_or_channel(out, in_, sizes):
    return ((), (1,), (out,), (out, 1))


def _input_channels(out, in_, sizes):
    return ((in_,),)


def _groups(in_: int, sizes: QuantizationSizes) -> tuple[int, ...]:
    return tuple(
        1 if size == -1 else _ceil_div(in_, size) for size in sizes.group_sizes
    )


def _packed(size: int, bits: int) -> int:
    return _ceil_div(size * bits, 32)


def _packed_input_last(out, in_, sizes):
    return tuple((out, _packed(in_, bits)) for bits in sizes.bits)


def _scale_groups_last(out, in_, sizes):
    return tuple((out, groups) for groups in _groups(in_, sizes))


def _zeros_groups_last(out, in_, sizes):
    return tuple(
        (_packed(out, bits), groups)
        for bits in sizes.bits
        for groups in _groups(in_, sizes)
    )


def _packed_input_first(out, in_, sizes):
    return tuple((_packed(in_, bits), out) for bits in sizes.bits)


def _packed_output(out, in_, sizes):
    return tuple((in_, _packed(out, bits)) for bits in sizes.bits)


def _scale_groups_first(out, in_, sizes):
    return tuple((groups, out) for groups in _groups(in_, sizes))


def _zeros_groups_first(out, in_, sizes):
    return tuple(
        (groups, _packed(out, bits))
        for bits in sizes.bits
        for groups in _groups(in_, sizes)
    )


def _pair(out, in_, sizes):
    return ((2,),)


_SCALE = StoredTensor(FLOATS, _scalar)

UNQUANTIZED = "unquantized"

SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme(UNQUANTIZED, "not quantized", {"weight": StoredTensor(FLOATS, _weight)}),
        # NVIDIA ModelOpt: 4-bit values, one e4m3 scale for 16 of them, one f32 scale.
        Scheme(
            "nvfp4",
            "NVFP4 (modelopt)",
            required={
                "weight": StoredTensor(_BYTES, _half_weight),
                "weight_scale": StoredTensor(_FP8, _blocks_of(16)),
                "weight_scale_2": StoredTensor(("F32",), _scalar),
            },
            optional={
                "input_scale": _SCALE,
                "pre_quant_scale": StoredTensor(FLOATS, _input_channels),
            },
            methods=("modelopt", "modelopt_fp4", "modelopt_mixed"),
        ),
        # compressed-tensors `nvfp4-pack-quantized`: global scales are reciprocals.
        Scheme(
            "nvfp4-pack-quantized",
            "NVFP4 (compressed-tensors)",
            required={
                "weight_packed": StoredTensor(_BYTES, _half_weight),
                "weight_scale": StoredTensor(_FP8, _blocks_of(16)),
                "weight_global_scale": StoredTensor(("F32",), _scalar),
            },
            optional={"input_global_scale": _SCALE},
            methods=("compressed-tensors",),
        ),
        Scheme(
            "fp8-block",
            "FP8 (block)",
            required={
                "weight": StoredTensor(_FP8, _weight),
                "weight_scale_inv": StoredTensor(FLOATS, _block_grid),
            },
            optional={"input_scale": _SCALE},
            methods=("fp8",),
        ),
        Scheme(
            "fp8",
            "FP8",
            required={
                "weight": StoredTensor(_FP8, _weight),
                "weight_scale": StoredTensor(FLOATS, _per_tensor_channel_or_block),
            },
            optional={"input_scale": _SCALE},
            methods=("fp8", "modelopt", "modelopt_fp8", "compressed-tensors"),
        ),
        Scheme(
            "mxfp8",
            "MXFP8",
            required={
                "weight": StoredTensor(_FP8, _weight),
                "weight_scale": StoredTensor(_E8M0, _blocks_of(32)),
            },
            methods=("mxfp8", "modelopt_mixed"),
        ),
        Scheme(
            "mxfp4",
            "MXFP4",
            required={
                "weight": StoredTensor(_BYTES, _half_weight),
                "weight_scale": StoredTensor(_E8M0, _blocks_of(32)),
            },
            methods=("quark", "mxfp4"),
        ),
        Scheme(
            "int-quantized",
            "INT8",
            required={
                "weight": StoredTensor(("I8",), _weight),
                "weight_scale": StoredTensor(FLOATS, _per_tensor_or_channel),
            },
            optional={
                "input_scale": _SCALE,
                "input_zero_point": StoredTensor(("I8", "I32"), _scalar),
            },
            methods=("compressed-tensors", "w8a8_int8"),
        ),
        Scheme(
            "pack-quantized",
            "INT4/INT8 (compressed-tensors)",
            required={
                "weight_packed": StoredTensor(("I32",), _packed_input_last),
                "weight_scale": StoredTensor(FLOATS, _scale_groups_last),
                "weight_shape": StoredTensor(("I64", "I32"), _pair),
            },
            optional={
                "weight_zero_point": StoredTensor(("I32",), _zeros_groups_last),
                "weight_g_idx": StoredTensor(("I32",), _input_channels),
            },
            methods=("compressed-tensors",),
        ),
        Scheme(
            "gptq",
            "GPTQ",
            required={
                "qweight": StoredTensor(("I32",), _packed_input_first),
                "qzeros": StoredTensor(("I32",), _zeros_groups_first),
                "scales": StoredTensor(FLOATS, _scale_groups_first),
            },
            optional={"g_idx": StoredTensor(("I32",), _input_channels)},
            methods=("gptq", "gptq_marlin", "auto-round"),
        ),
        Scheme(
            "awq",
            "AWQ",
            required={
                "qweight": StoredTensor(("I32",), _packed_output),
                "qzeros": StoredTensor(("I32",), _zeros_groups_first),
                "scales": StoredTensor(FLOATS, _scale_groups_first),
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
) -> tuple[Shape, ...]:
    """Shapes that `stored` may have for a weight of `shape`: [..., out, in] or [size].

    Leading dimensions (packed experts) lead every shape, and a scale for a whole tensor
    becomes one for each expert.
    """
    if len(shape) < 2:
        return (shape,)
    *lead, out, in_ = shape
    return tuple(
        dict.fromkeys((*lead, *rest) for rest in stored.shapes(out, in_, sizes))
    )


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

    The choice rests on the tensors: it stays the same for a module with a tensor missing
    or wrongly shaped, so that the error can say which.
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
