"""Random problems for every kernel: a launch, and the float64 answer to judge it by."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from sgl_kernel_nvfp4 import launches, reference
from sgl_kernel_nvfp4.config import GemmConfig, QuantizeConfig
from sgl_kernel_nvfp4.formats import (
    E2M1_VALUES,
    pad_codes,
    scale_shape,
    swizzle_scales,
    unpack_codes,
    unswizzle_scales,
)
from sgl_kernel_nvfp4.launch import Launch
from sgl_kernel_nvfp4.workspace import LEAST_KEY, Workspace

CPU = torch.device("cpu")
NOT_A_NUMBER = float("nan")


@dataclass(frozen=True)
class Case:
    """A launch with its answer.

    written: tensors every byte of which the launch must write.
    error: worst error after the launch ran, in units that ``tolerance`` bounds.
    """

    name: str
    launch: Launch
    written: tuple[torch.Tensor, ...]
    error: Callable[[], float]
    tolerance: float
    workspace: Workspace | None = None

    def check(self) -> float:
        """The worst error; AssertionError if it is too great or a counter is not 0."""
        error = self.error()
        assert error <= self.tolerance, f"{self.name}: error {error:.3g}"
        if self.workspace is not None:
            assert not self.workspace.arrived.any(), f"{self.name}: counter not reset"
            keys = self.workspace.best
            assert (keys == LEAST_KEY).all(), f"{self.name}: keys not reset"
        return error


def generator(*seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(hash(seed) % 2**63)


def random_matrix(
    rows: int, k: int, random: torch.Generator, batch: tuple[int, ...] = ()
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and swizzled scales, among them scales that are 0, 2**-9 and 448."""
    shape = (*batch, rows, k)
    codes = torch.randint(0, 256, (*shape[:-1], k // 2), generator=random)
    scale = torch.rand((*shape[:-1], k // 16), generator=random) * 4 + 0.01
    flat = scale.view(-1)
    flat[::37], flat[5::41], flat[3::53] = 2.0**-9, 448.0, 0.0
    scale = swizzle_scales(scale.to(torch.float8_e4m3fn))
    return pad_codes(codes.to(torch.uint8)), scale


@functools.lru_cache(maxsize=1)
def _weight(n: int, k: int, batch: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    """Codes, scales and float64 values; kept, since a sweep over M asks again."""
    codes, scale = random_matrix(n, k, generator(n, k, 1), batch)
    return codes, scale, reference.dequantize(codes, scale, k)


def weight(
    n: int, k: int, batch: tuple[int, ...] = ()
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same codes and swizzled scales for every M; a copy, which may be changed."""
    codes, scale, _ = _weight(n, k, batch)
    return codes.clone(), scale.clone()


def exact_weight(n: int, k: int, batch: tuple[int, ...] = ()) -> torch.Tensor:
    return _weight(n, k, batch)[2]


def scaled_error(out: torch.Tensor, answer: torch.Tensor, size: torch.Tensor) -> float:
    """Worst |out - answer|, relative to the sum of the sizes of the terms of answer.

    Half a step of the type of ``out`` is forgiven, relative to the answer.
    """
    if not out.numel():
        return 0.0
    step = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}.get(out.dtype, 0.0)
    wrong = (out.double() - answer).abs() - answer.abs() * step * 1.0001
    if not torch.isfinite(out).all():
        return float("inf")
    if out.dtype == torch.float16:
        wrong = wrong - 2.0**-25  # half a step of the subnormals
    return float((wrong / size.clamp(min=1e-30)).clamp(min=0).max())


GEMM_TOLERANCE = 2e-6
"""33 roundings of float32: sums by blocks, splits and the last scaling stay below."""


def _workspace(m: int, n: int, config: GemmConfig) -> Workspace:
    floats = launches.partial_floats(m, n, config)
    return Workspace.allocate(CPU, floats, launches.gemm_tiles(m, n, config), m)


def gemm_case(
    m: int,
    n: int,
    k: int,
    config: GemmConfig,
    out_dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Case:
    a, a_scale = random_matrix(m, k, generator(m, n, k, seed))
    b, b_scale = weight(n, k)
    alpha = torch.tensor([0.037])
    out = torch.full((m, n), NOT_A_NUMBER, dtype=out_dtype)
    workspace = _workspace(m, n, config)
    padded_k = 2 * a.shape[1]
    launch = launches.w4a4_gemm(
        a, a_scale, b, b_scale, alpha, out, padded_k, config, workspace
    )

    def error() -> float:
        left = reference.dequantize(a, a_scale, k)
        right = exact_weight(n, k)
        factor = alpha.double()
        answer = left @ right.T * factor
        return scaled_error(out, answer, left.abs() @ right.abs().T * factor)

    name = f"w4a4_gemm M={m} N={n} K={k} {config}"
    return Case(name, launch, (out,), error, GEMM_TOLERANCE, workspace)


def w4a16_case(
    m: int,
    n: int,
    k: int,
    config: GemmConfig,
    dtype: torch.dtype = torch.bfloat16,
    out_dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Case:
    random = generator(m, n, k, seed)
    x = torch.randn(m, k, generator=random).to(dtype)
    if dtype == torch.bfloat16:
        x[:, ::7] *= 1e5  # beyond float16, which the kernel must not pass through
    b, b_scale = weight(n, k)
    alpha = torch.tensor([0.037])
    out = torch.full((m, n), NOT_A_NUMBER, dtype=out_dtype)
    workspace = _workspace(m, n, config)
    launch = launches.w4a16_gemm(x, b, b_scale, alpha, out, config, workspace)

    def error() -> float:
        right = exact_weight(n, k)
        left, factor = x.double(), alpha.double()
        answer = left @ right.T * factor
        return scaled_error(out, answer, left.abs() @ right.abs().T * factor)

    name = f"w4a16_gemm M={m} N={n} K={k} {dtype} {config}"
    return Case(name, launch, (out,), error, GEMM_TOLERANCE, workspace)


def argmax_case(
    m: int, n: int, k: int, config: GemmConfig, first_index: int = 1000, seed: int = 0
) -> Case:
    a, a_scale = random_matrix(m, k, generator(m, n, k, seed))
    b, b_scale = weight(n, k)
    alpha = torch.tensor([0.037])
    index = torch.full((m,), -1, dtype=torch.int64)
    value = torch.full((m,), NOT_A_NUMBER)
    workspace = _workspace(m, n, config)
    launch = launches.w4a4_argmax(
        a,
        a_scale,
        b,
        b_scale,
        alpha,
        index,
        value,
        2 * a.shape[1],
        first_index,
        config,
        workspace,
    )

    def error() -> float:
        """How far, relatively, the logit at ``index`` is from the greatest one."""
        left = reference.dequantize(a, a_scale, k)
        right = exact_weight(n, k)
        factor = alpha.double()
        logits = left @ right.T * factor
        size = (left.abs() @ right.abs().T * factor).amax(-1).clamp(min=1e-30)
        place = index - first_index
        if ((place < 0) | (place >= n)).any():
            return float("inf")
        best = logits.amax(-1)
        lost = best - logits.gather(-1, place[:, None])[:, 0]
        wrong = torch.maximum(lost, (value.double() - best).abs()) / size
        return float(wrong.max()) if m else 0.0

    name = f"w4a4_argmax M={m} N={n} K={k} {config}"
    return Case(name, launch, (index, value), error, GEMM_TOLERANCE, workspace)


def grouped_case(
    tokens: int,
    top_k: int,
    experts: int,
    n: int,
    k: int,
    config: GemmConfig,
    per_pair: bool = False,
    out_dtype: torch.dtype = torch.float32,
    absent: bool = False,
    seed: int = 0,
) -> Case:
    """per_pair: as w2, with a row of a for each pair, and weighted; else as w13.

    absent: some pairs belong to expert -1, which another rank holds.
    """
    random = generator(tokens, n, k, seed)
    scores = torch.rand(tokens, experts, generator=random)
    topk_ids = scores.topk(top_k, dim=-1).indices.to(torch.int32)
    if absent:
        topk_ids[torch.rand(tokens, top_k, generator=random) < 0.3] = -1
    pairs = tokens * top_k
    a, a_scale = random_matrix(pairs if per_pair else tokens, k, random)
    b, b_scale = weight(n, k, (experts,))
    alpha = torch.rand(experts, generator=random) + 0.1
    factor = torch.rand(pairs, generator=random) if per_pair else None
    out = torch.full((pairs, n), NOT_A_NUMBER, dtype=out_dtype)
    sorted_ids, expert_ids, count = reference.align_tokens(
        topk_ids, config.block_m, experts
    )
    # SGLang allocates for the worst case; what lies beyond ``count`` is not written.
    spare = torch.full((2 * config.block_m,), 2**31 - 1, dtype=torch.int32)
    launch = launches.w4a4_grouped_gemm(
        a,
        a_scale,
        b,
        b_scale,
        alpha,
        out,
        factor,
        torch.cat((sorted_ids, spare)),
        torch.cat((expert_ids, spare[:2])),
        count,
        1 if per_pair else top_k,
        2 * a.shape[1],
        config,
    )

    def error() -> float:
        def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            result = left.new_zeros(pairs, n)
            for expert in range(experts):
                pair = (topk_ids.flatten() == expert).nonzero().flatten()
                rows = left[pair if per_pair else pair // top_k]
                result[pair] = rows @ right[expert].T * alpha[expert].double()
            return result if factor is None else result * factor.double()[:, None]

        left = reference.dequantize(a, a_scale, k)
        right = exact_weight(n, k, (experts,))
        return scaled_error(out, product(left, right), product(left.abs(), right.abs()))

    name = f"w4a4_grouped_gemm tokens={tokens} N={n} K={k} {config}"
    return Case(name, launch, (out,), error, GEMM_TOLERANCE)


def random_activations(
    m: int, k: int, dtype: torch.dtype, random: torch.Generator
) -> torch.Tensor:
    """Rows with blocks of zeros, of great and of tiny values, and a row of zeros."""
    x = torch.randn(m, k, generator=random)
    flat = x.view(-1, 16)
    flat[::11] *= 100.0
    flat[3::13] *= 1e-4
    flat[5::17] = 0.0
    x[3::7] = 0.0
    return x.to(dtype)


def quantize_case(
    m: int,
    k: int,
    config: QuantizeConfig,
    dtype: torch.dtype = torch.bfloat16,
    gated: bool = False,
    gate_first: bool = True,
    per_expert: bool = False,
    swizzled: bool = True,
    global_scale: float = 7.3,
    x: torch.Tensor | None = None,
    seed: int = 0,
) -> Case:
    random = generator(m, k, seed)
    width = 2 * k if gated else k
    values = random_activations(m, width, dtype, random) if x is None else x
    expert = None
    factor = torch.tensor([global_scale])
    if per_expert:
        expert = torch.randint(-1, 4, (m,), generator=random, dtype=torch.int32)
        factor = torch.tensor([0.5, 3.0, 7.7, 100.0])
    codes, scale = _empty_codes(m, k, swizzled)
    launch = launches.quantize_rows(
        values,
        factor,
        expert,
        codes,
        scale,
        k,
        gated,
        gate_first,
        swizzled,
        config,
    )

    def error() -> float:
        row_factor = factor
        if expert is not None:
            row_factor = torch.where(expert < 0, 1.0, factor[expert.long()])
            row_factor = row_factor.reshape(-1, 1)
        exact = values.double()
        if gated:
            first, second = exact.chunk(2, dim=-1)
            gate, up = (first, second) if gate_first else (second, first)
            exact = torch.nn.functional.silu(gate) * up
        slack = 4e-6 if gated else 0.0
        return _code_error(codes, scale, exact, dtype, row_factor, slack, swizzled)

    name = f"quantize M={m} K={k} {dtype} gated={gated} swizzled={swizzled}"
    return Case(name, launch, _written(codes, scale, m, swizzled), error, 0.0)


def tie_case(config: QuantizeConfig) -> Case:
    """Values exactly half-way between two codes, for every normal e4m3 scale.

    With a global scale of 1 all of it is exact in float32, so there is no excuse.
    """
    scales = torch.arange(0x30, 0x58, dtype=torch.uint8).view(torch.float8_e4m3fn)
    middle = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0])
    block = torch.cat((middle, -middle))
    x = (scales.float()[:, None] * block).reshape(4, -1).to(torch.bfloat16)
    return quantize_case(4, x.shape[1], config, global_scale=1.0, x=x)


def rmsnorm_case(
    m: int,
    k: int,
    config: QuantizeConfig,
    dtype: torch.dtype = torch.bfloat16,
    residual: bool = True,
    weight_offset: float = 1.0,
    swizzled: bool = True,
    seed: int = 0,
) -> Case:
    random = generator(m, k, seed)
    x = random_activations(m, k, dtype, random)
    other = random_activations(m, k, dtype, random) if residual else None
    before = None if other is None else other.clone()
    weight = torch.randn(k, generator=random).to(dtype)
    factor = torch.tensor([2.1])
    codes, scale = _empty_codes(m, k, swizzled)
    launch = launches.rmsnorm_quantize(
        x,
        other,
        weight,
        factor,
        codes,
        scale,
        1e-6,
        weight_offset,
        swizzled,
        config,
    )

    def error() -> float:
        total = x.double() if before is None else x.double() + before.double()
        if other is not None and not torch.equal(other, total.to(dtype)):
            return float("inf")
        root = torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6)
        exact = total * root * (weight.double() + weight_offset)
        return _code_error(codes, scale, exact, dtype, factor, 4e-6, swizzled)

    name = f"rmsnorm_quantize M={m} K={k} {dtype} residual={residual}"
    return Case(name, launch, _written(codes, scale, m, swizzled), error, 0.0)


def combine_case(
    tokens: int, n: int, top_k: int, dtype: torch.dtype = torch.bfloat16
) -> Case:
    random = generator(tokens, n, top_k)
    pairs = torch.randn(tokens * top_k, n, generator=random).to(dtype)
    out = torch.full((tokens, n), NOT_A_NUMBER, dtype=dtype)
    launch = launches.combine_pairs(pairs, out, top_k, 2.5)

    def error() -> float:
        terms = pairs.double().reshape(tokens, top_k, n)
        return scaled_error(out, terms.sum(1) * 2.5, terms.abs().sum(1) * 2.5)

    name = f"combine tokens={tokens} N={n} top_k={top_k} {dtype}"
    return Case(name, launch, (out,), error, GEMM_TOLERANCE)


def _empty_codes(m: int, k: int, swizzled: bool) -> tuple[torch.Tensor, torch.Tensor]:
    codes = torch.full((m, -(-k // 32) * 16), 0xEE, dtype=torch.uint8)
    shape = scale_shape(m, k) if swizzled else (m, k // 16)
    return codes, torch.full(shape, 3.0).to(torch.float8_e4m3fn)


def _written(
    codes: torch.Tensor, scale: torch.Tensor, m: int, swizzled: bool
) -> tuple[torch.Tensor, ...]:
    # Rows beyond M of the last tile of swizzled scales stay as they were.
    return (codes,) if swizzled and m % 128 else (codes, scale)


def _code_error(
    codes: torch.Tensor,
    scale: torch.Tensor,
    exact: torch.Tensor,
    dtype: torch.dtype,
    factor: torch.Tensor,
    slack: float,
    swizzled: bool,
) -> float:
    """How many codes and scales differ from the reference without an excuse.

    exact: float64 [M, K], what is rounded to ``dtype`` and then quantised. ``slack`` is
    the relative error that float32 functions may add before that rounding; where it
    could change the rounded value, the block may be that of either. The other excuse
    is a value that lies within 1e-6 of half-way between two codes, or a scale that does
    within two roundings of float32, as its product and its division by 6 may.
    """
    m, k = exact.shape
    if codes[:, k // 2 :].any():
        return float("inf")
    if swizzled:
        everything = unswizzle_scales(scale, m, -(-k // 64) * 64)
        if everything[:, k // 16 :].float().any():
            return float("inf")
        scale = unswizzle_scales(scale, m, k)
    got_codes, got_scale = codes[:, : k // 2], scale.view(torch.uint8)
    bad = torch.ones(m, k // 16, dtype=torch.bool)
    for shift in (0.0,) if not slack else (0.0, -slack, slack):
        value = (exact * (1 + shift)).to(dtype)
        for want_scale in _possible_scales(value, factor):
            want_codes = reference.block_codes(value, factor, want_scale)
            same = unpack_codes(got_codes) == want_codes
            tie = _near_tie(value, want_scale, factor)
            fine = (same | tie).reshape(m, k // 16, 16).all(-1)
            bad &= ~(fine & (got_scale == want_scale.view(torch.uint8)))
    if slack:
        # Elements of a block may have been rounded in different directions.
        low, high = (exact * (1 - slack)).to(dtype), (exact * (1 + slack)).to(dtype)
        bad &= (low == high).reshape(m, k // 16, 16).all(-1)
    return float(bad.sum())


def _possible_scales(
    value: torch.Tensor, factor: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """The scales of the blocks, and those of their near neighbours; a tie has none."""
    exact = reference.block_scales(value, factor)
    low, high = (
        reference.block_scales(value, factor.double() * (1 + sign * 2.0**-23))
        for sign in (-1, 1)
    )
    middle = (low.double() + high.double()) / 2
    amax = value.double().reshape(*exact.shape, 16).abs().amax(-1)
    tie = amax * factor.double().reshape(-1, 1) / 6 == middle
    bits = [scale.view(torch.uint8) for scale in (exact, low, high)]
    return tuple(
        torch.where(tie, bits[0], other).view(torch.float8_e4m3fn) for other in bits
    )


def _near_tie(
    value: torch.Tensor, scale: torch.Tensor, factor: torch.Tensor
) -> torch.Tensor:
    """bool [M, K]: not a tie, but so near to one that float32 may decide otherwise."""
    grid = torch.tensor(E2M1_VALUES, dtype=torch.float64)
    middle = (grid[1:] + grid[:-1]) / 2
    divisor = scale.double().repeat_interleave(16, dim=-1)
    scaled = (value.double() * factor.double().reshape(-1, 1) / divisor).abs()
    distance = (scaled[..., None] - middle).abs().amin(-1)
    return (distance > 0) & (distance < 1e-6)
