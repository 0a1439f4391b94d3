"""Mamba states are scattered and tracked on the CPU as the kernels do it."""

import itertools
import unittest
from types import SimpleNamespace

import torch

from sglang.kernels.ops.mamba.mamba_state_scatter_triton import (
    fused_conv_window_scatter_with_mask,
    fused_mamba_state_scatter_with_mask,
    scatter_mamba_states_after_mtp_verify,
    track_mamba_states_all_layers,
    track_mamba_states_if_needed,
)
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

NUM_LAYERS, NUM_SLOTS, NUM_ROWS, NUM_STEPS = 2, 6, 3, 4
DIM, WINDOW = 5, 3


def reference_scatter(dst, src, slots, steps, rows):
    """Copy the state after ``steps[i]`` of ``rows[i]`` to ``slots[i]``."""
    expected = dst.clone()
    for row, slot, step in zip(rows, slots, steps):
        if 0 <= step < src.shape[2] and 0 <= slot < dst.shape[1]:
            expected[:, slot] = src[:, row, step].to(dst.dtype)
    return expected


def reference_track(states, sources, mask, targets):
    """Copy the slots of tracked rows, freed slots (-1) aside."""
    expected = states.clone()
    for source, tracked, target in zip(sources, mask, targets):
        if tracked and source >= 0 and target >= 0:
            expected[:, target] = states[:, source]
    return expected


def random_states(dtype=torch.float32):
    torch.manual_seed(0)
    dst = torch.randn(NUM_LAYERS, NUM_SLOTS, DIM, WINDOW).to(dtype)
    src = torch.randn(NUM_LAYERS, NUM_ROWS, NUM_STEPS, DIM, WINDOW).to(dtype)
    return dst, src


def sliding_windows():
    """Windows that overlap in memory, as the deduplicated conv cache stores them."""
    torch.manual_seed(1)
    shared = torch.randn(NUM_LAYERS, NUM_ROWS, DIM, NUM_STEPS + WINDOW - 1)
    layer, row, dim, _ = shared.stride()
    shape = (NUM_LAYERS, NUM_ROWS, NUM_STEPS, DIM, WINDOW)
    return shared.as_strided(shape, (layer, row, 1, dim, 1))


class TestMambaStateScatterOnCpu(CustomTestCase):
    def assert_same(self, actual, expected):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)

    def test_accepted_states_reach_their_slots(self):
        slots_and_steps = (
            ([4, 0, 2], [0, 3, 1]),
            ([4, -1, 2], [0, 3, 1]),
            ([4, 0, NUM_SLOTS], [0, 3, 1]),
            ([4, 0, 2], [-1, -1, -1]),
            ([4, 0, 2], [0, NUM_STEPS, -1]),
        )
        for (slots, steps), rows, index_dtype in itertools.product(
            slots_and_steps, (None, [2, 0, 1]), (torch.int32, torch.int64)
        ):
            with self.subTest(slots=slots, steps=steps, rows=rows, dtype=index_dtype):
                dst, src = random_states()
                expected = reference_scatter(
                    dst, src, slots, steps, rows or range(NUM_ROWS)
                )
                fused_mamba_state_scatter_with_mask(
                    dst,
                    src,
                    torch.tensor(slots, dtype=index_dtype),
                    torch.tensor(steps, dtype=index_dtype),
                    None if rows is None else torch.tensor(rows, dtype=index_dtype),
                )
                self.assert_same(dst, expected)

    def test_overlapping_conv_windows_are_followed_through_their_strides(self):
        dst, _ = random_states()
        src = sliding_windows()
        expected = reference_scatter(dst, src, [5, 1, 3], [3, 0, 2], range(NUM_ROWS))
        fused_conv_window_scatter_with_mask(
            dst, src, torch.tensor([5, 1, 3]), torch.tensor([3, 0, 2])
        )
        self.assert_same(dst, expected)

    def test_verify_commits_both_kinds_of_state_and_the_tracked_ones(self):
        slots, steps = [1, 4, 2], [2, 0, -1]
        track_slots, track_steps = [3, 5, 0], [-1, 3, 1]
        for dtype, tracked in itertools.product(
            (torch.float32, torch.bfloat16), (False, True)
        ):
            with self.subTest(dtype=dtype, tracked=tracked):
                conv, conv_windows = random_states(dtype)
                temporal, intermediate = random_states()
                expected = []
                for dst, src in ((conv, conv_windows), (temporal, intermediate)):
                    states = reference_scatter(dst, src, slots, steps, range(NUM_ROWS))
                    if tracked:
                        states = reference_scatter(
                            states, src, track_slots, track_steps, range(NUM_ROWS)
                        )
                    expected.append(states)
                scatter_mamba_states_after_mtp_verify(
                    SimpleNamespace(
                        conv=[conv],
                        intermediate_conv_window=[conv_windows],
                        temporal=temporal,
                        intermediate_ssm=intermediate,
                    ),
                    torch.tensor(slots),
                    torch.tensor(steps),
                    torch.tensor(track_slots) if tracked else None,
                    torch.tensor(track_steps) if tracked else None,
                )
                self.assert_same([conv, temporal], expected)

    def test_tracked_rows_are_copied_to_their_track_slots(self):
        sources, targets = [0, 2, -1], [1, 3, 4]
        for mask, all_layers in itertools.product(
            ([1, 0, 1], [0, 0, 0], [1, 1, 1]), (False, True)
        ):
            with self.subTest(mask=mask, all_layers=all_layers):
                conv, _ = random_states()
                ssm = torch.randn(NUM_LAYERS, NUM_SLOTS, 2, 2, 2)
                expected = [
                    reference_track(states, sources, mask, targets)
                    for states in (conv, ssm)
                ]
                arguments = (
                    torch.tensor([*sources, 5], dtype=torch.int32),
                    torch.tensor([*mask, 1], dtype=torch.bool),
                    torch.tensor([*targets, 0]),
                    len(sources),
                )
                if all_layers:
                    track_mamba_states_all_layers(
                        conv, ssm, *arguments, check_freed_slots=True
                    )
                else:
                    for layer in range(NUM_LAYERS):
                        track_mamba_states_if_needed(
                            conv[layer], ssm[layer], *arguments, check_freed_slots=True
                        )
                self.assert_same([conv, ssm], expected)


if __name__ == "__main__":
    unittest.main()
