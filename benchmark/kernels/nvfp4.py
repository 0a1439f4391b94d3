"""NVFP4 GEMMs against what else is on the machine, or, without a GPU, on paper.

    python benchmark/kernels/nvfp4.py                  # on a GPU
    python benchmark/kernels/nvfp4.py --static         # anywhere

The first measures: weights cold in L2, CUDA graphs, median and spread of the replays,
against ceilings that it measures too. The second compiles the kernels for SM120 and
prints what their machine code says, and a bound that is modelled, not measured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "sgl-kernel"), str(ROOT / "test")]

import torch  # noqa: E402
from problems import Problem, problems  # noqa: E402
from report import Row, print_table, write_csv, write_plot  # noqa: E402

STATIC_TITLE = "Modelled lower bound on an RTX PRO 6000, microseconds. Not measured."


def static_rows(chosen: list[Problem]) -> list[Row]:
    from static_model import static_row

    rows: list[Row] = []
    for problem in chosen:
        for half in (False, True) if _may_be_half(problem) else (False,):
            row = static_row(problem, half)
            facts, config = row.facts, row.config
            rows.append(
                {
                    "layer": problem.name,
                    "M": problem.m,
                    "N": problem.n,
                    "K": problem.k,
                    "kernel": row.kernel,
                    "tile": f"{config.block_m}x{config.block_n}x{config.block_k}",
                    "split": config.split_k,
                    "instr/MMA": facts.instructions_per_mma,
                    "registers": facts.registers,
                    "spills": facts.spills,
                    "shared": facts.shared_bytes,
                    "blocks/SM": facts.blocks_per_multiprocessor,
                    "waves": row.waves,
                    "MB": problem.bytes(4, 16 if half else 4) / 1e6,
                    "MFLOP": problem.flop / 1e6,
                    "memory us": row.memory_us,
                    "issue us": row.issue_us,
                    "bound": row.bound,
                    "modelled us": row.modelled_us,
                }
            )
    return rows


def _may_be_half(problem: Problem) -> bool:
    return not problem.experts and problem.layer != "lm_head" and problem.m <= 64


def measured_ceilings() -> tuple[float, float]:
    """(bytes, bfloat16 FLOP) a second, of a great copy and of a great cuBLAS GEMM."""
    from sgl_kernel_nvfp4.measure import measure

    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy_us = measure(lambda _: target.copy_(source), 2).median
    a = torch.randn(8192, 8192, device="cuda").to(torch.bfloat16)
    gemm_us = measure(lambda _: a @ a, 2).median
    return 2 * source.numel() / copy_us * 1e6, 2 * 8192**3 / gemm_us * 1e6


def describe_device() -> str:
    properties = torch.cuda.get_device_properties(0)
    clocks = "clocks unknown"
    try:
        clocks = f"SM clock {torch.cuda.clock_rate()} MHz, {torch.cuda.power_draw()} mW"
    except (RuntimeError, ModuleNotFoundError) as error:
        clocks = f"clocks unknown ({error})"
    import triton

    return (
        f"{properties.name}, capability {properties.major}.{properties.minor}, "
        f"{properties.multi_processor_count} SMs, {clocks}; torch {torch.__version__}, "
        f"CUDA {torch.version.cuda}, triton {triton.__version__}"
    )


def measured_rows(chosen: list[Problem]) -> list[Row]:
    from backends import Operands, Unavailable, backends_of

    from sgl_kernel_nvfp4.measure import copies_beyond_cache, measure

    bytes_per_second, flop_per_second = measured_ceilings()
    print(describe_device())
    print(
        f"ceilings: {bytes_per_second / 1e9:.0f} GB/s copied, "
        f"{flop_per_second / 1e12:.0f} TFLOP/s in bfloat16"
    )
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    rows: list[Row] = []
    for problem in chosen:
        if problem.experts:
            continue
        copies = copies_beyond_cache(int(problem.weight_bytes(4)), cache)
        operands = Operands.make(problem, copies)
        reference_us = None
        for backend in backends_of(problem):
            try:
                timing = measure(backend.prepare(operands), copies)
            except (Unavailable, RuntimeError, ValueError, TypeError) as error:
                print(f"{problem.name} M={problem.m} {backend.name}: {error}")
                continue
            reference_us = reference_us or timing.median
            moved = problem.bytes(backend.weight_bits, backend.activation_bits)
            memory_us = moved / bytes_per_second * 1e6
            rows.append(
                {
                    "layer": problem.name,
                    "M": problem.m,
                    "N": problem.n,
                    "K": problem.k,
                    "backend": backend.name,
                    "us": timing.median,
                    "spread us": timing.spread,
                    "x cuBLAS": reference_us / timing.median,
                    "GB/s": moved / timing.median / 1e3,
                    "TFLOP/s": problem.flop / timing.median / 1e6,
                    "% of memory bound": 100 * memory_us / timing.median,
                }
            )
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--static", action="store_true", help="needs no GPU")
    parser.add_argument("--model", action="append", help="27B, 35B-A3B, 397B-A17B")
    parser.add_argument("--tp", type=int, action="append", choices=(1, 2, 4, 8))
    parser.add_argument("--m", type=int, action="append", help="rows; may repeat")
    parser.add_argument("--no-prefill", action="store_true")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args(arguments)
    if not options.static and not torch.cuda.is_available():
        parser.error("no CUDA device; --static works without one")
    chosen = list(
        problems(options.model, options.tp or [1], options.m, not options.no_prefill)
    )
    if options.static:
        rows, value, series = static_rows(chosen), "modelled us", "kernel"
        print(STATIC_TITLE)
    else:
        rows, value, series = measured_rows(chosen), "us", "backend"
    print_table(rows)
    if options.csv and rows:
        write_csv(rows, options.csv)
    if options.plot and rows:
        title = STATIC_TITLE if options.static else describe_device()
        write_plot(rows, value, series, title, options.plot)


if __name__ == "__main__":
    main()
