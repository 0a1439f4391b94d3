"""A head that is not all there is an error that names what is missing, and where."""

import tempfile
import unittest
from pathlib import Path

from head_files import (
    DENSE_CONFIG,
    MOE_CONFIG,
    bf16,
    dense_head,
    gated_mlp,
    moe_head,
    nvfp4,
    quantize,
    with_text,
    write_checkpoint,
    write_index,
)

from sglang.srt.speculative.nextn.completeness import (
    IncompleteHeadError,
    NoHeadError,
    Problem,
    ProblemKind,
)
from sglang.srt.speculative.nextn.head_plan import plan_head
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, enter_scope

register_cpu_ci(est_time=5, suite="base-a-test-cpu")

ATTENTION = "mtp.layers.0.self_attn"
MLP = "mtp.layers.0.mlp"
O_PROJ = f"{ATTENTION}.o_proj"
SHARD = "model-2.safetensors"


class HeadTestCase(CustomTestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(enter_scope(self, tempfile.TemporaryDirectory()))

    def plan(self, head, config=DENSE_CONFIG):
        return plan_head(write_checkpoint(self.folder, head, config), config)

    def error_of(self, head, config=DENSE_CONFIG):
        with self.assertRaises(IncompleteHeadError) as caught:
            self.plan(head, config)
        return caught.exception

    def assert_left_over(self, head, names, config=DENSE_CONFIG):
        problems = self.error_of(head, config).problems
        left_over = [p.name for p in problems if p.kind is ProblemKind.LEFT_OVER]
        self.assertEqual(left_over, names)


class TestCompleteHead(HeadTestCase):
    def test_a_complete_head_is_planned(self):
        two, unknown = (
            with_text(DENSE_CONFIG, mtp_num_hidden_layers=count) for count in (2, None)
        )
        for head, config, num_layers in (
            (dense_head(), DENSE_CONFIG, 1),
            (dense_head(2), two, 2),
            (dense_head(2), unknown, 2),
            (moe_head(), MOE_CONFIG, 1),
            (moe_head(packed=True), MOE_CONFIG, 1),
        ):
            plan = self.plan(head, config)
            self.assertEqual(plan.problems, ())
            self.assertEqual(plan.num_layers, num_layers)
            modules = plan.inventory.modules
            found = {tensor.name for m in modules for tensor in m.found.values()}
            self.assertEqual(found, set(head))

    def test_fused_projections_are_complete(self):
        split = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
        head = {
            name: tensor
            for name, tensor in dense_head().items()
            if name.split(".")[-2] not in split
        }
        head[f"{ATTENTION}.qkv_proj.weight"] = bf16(384, 128)
        head[f"{MLP}.gate_up_proj.weight"] = bf16(512, 128)
        self.assertEqual(self.plan(head).problems, ())

    def test_scales_of_the_kv_cache_and_rotary_tables_are_no_surplus(self):
        head = {
            **dense_head(),
            f"{ATTENTION}.k_proj.k_scale": ("F32", ()),
            f"{ATTENTION}.v_proj.v_scale": ("F32", ()),
            f"{ATTENTION}.k_scale": ("F32", (1,)),
            f"{ATTENTION}.rotary_emb.inv_freq": ("F32", (16,)),
        }
        self.assertEqual(self.plan(head).problems, ())


class TestIncompleteHead(HeadTestCase):
    def test_any_missing_tensor_is_named_with_shard_and_shape(self):
        for name, (_, shape) in moe_head().items():
            with self.subTest(name=name):
                head = moe_head()
                del head[name]
                error = self.error_of(head, MOE_CONFIG)
                sizes = str(list(shape))
                missing = Problem(ProblemKind.MISSING, name, SHARD, "", sizes)
                self.assertEqual(error.problems, (missing,))
                for words in (name, SHARD, sizes):
                    self.assertIn(words, str(error))

    def test_any_wrong_shape_is_named_with_both_shapes(self):
        for name, (_, shape) in dense_head().items():
            for wrong in ((7,), (3, 5), (2, 3, 4)):
                with self.subTest(name=name, wrong=wrong):
                    error = self.error_of({**dense_head(), name: bf16(*wrong)})
                    sizes = str(list(wrong)), str(list(shape))
                    kind = ProblemKind.WRONG_SHAPE
                    problem = Problem(kind, name, SHARD, *sizes)
                    self.assertEqual(error.problems, (problem,))

    def test_a_wrong_dtype_is_named(self):
        head = {**dense_head(), "mtp.norm.weight": ("I64", (128,))}
        (problem,) = self.error_of(head).problems
        self.assertIs(problem.kind, ProblemKind.WRONG_DTYPE)
        self.assertEqual((problem.name, problem.found), ("mtp.norm.weight", "I64"))

    def test_a_tensor_that_nothing_takes_is_named_with_its_shape(self):
        extra = f"{ATTENTION}.extra_proj.weight"
        error = self.error_of({**dense_head(), extra: bf16(3, 5)})
        problem = Problem(ProblemKind.LEFT_OVER, extra, SHARD, "BF16 [3, 5]", "")
        self.assertEqual(error.problems, (problem,))

    def test_a_bias_or_a_stale_scale_is_left_over(self):
        for name, tensor in (
            (f"{ATTENTION}.q_proj.bias", bf16(256)),
            (f"{O_PROJ}.weight_scale", ("F32", ())),
        ):
            self.assert_left_over({**dense_head(), name: tensor}, [name])

    def test_what_a_quantized_weight_lacks_is_named(self):
        whole = quantize(dense_head(), [O_PROJ], nvfp4(128, 128))
        for suffix, expected in (
            ("weight_scale_2", "[] or [1]"),
            ("weight", "[128, 64]"),
        ):
            head = {k: v for k, v in whole.items() if k != f"{O_PROJ}.{suffix}"}
            (problem,) = self.error_of(head).problems
            self.assertEqual(problem.name, f"{O_PROJ}.{suffix}")
            self.assertEqual(problem.expected, expected)
        head = {**whole, f"{O_PROJ}.weight_scale": ("F8_E4M3", (128, 4))}
        (problem,) = self.error_of(head).problems
        self.assertEqual((problem.found, problem.expected), ("[128, 4]", "[128, 8]"))

    def test_parts_of_a_fused_module_must_be_stored_alike(self):
        head = quantize(dense_head(), [f"{ATTENTION}.q_proj"], nvfp4(256, 128))
        (problem,) = self.error_of(head).problems
        self.assertIs(problem.kind, ProblemKind.MIXED)
        self.assertEqual(problem.name, f"{ATTENTION}.qkv_proj")
        self.assertIn("q_proj NVFP4", problem.found)

    def test_missing_experts_are_listed_as_ranges(self):
        head = {n: t for n, t in moe_head().items() if ".experts.1." not in n}
        del head[f"{MLP}.experts.2.up_proj.weight"]
        error = self.error_of(head, MOE_CONFIG)
        self.assertEqual(len(error.problems), 4)
        lines = [line for line in str(error).splitlines() if line.startswith("  ")]
        self.assertEqual(len(lines), 3)
        self.assertIn("experts.{1-2}.up_proj.weight", str(error))
        self.assertIn("experts.1.down_proj.weight", str(error))

    def test_experts_that_the_config_does_not_count_are_left_over(self):
        head = {**moe_head(), **gated_mlp(f"{MLP}.experts.4", 64)}
        parts = [f"{MLP}.experts.4.{x}_proj.weight" for x in ("gate", "up", "down")]
        self.assert_left_over(head, parts, MOE_CONFIG)
        both = {**moe_head(), **moe_head(packed=True)}
        packed = [f"{MLP}.experts.{x}_proj" for x in ("gate_up", "down")]
        self.assert_left_over(both, packed, MOE_CONFIG)

    def test_a_tensor_in_another_shard_than_indexed_is_named_with_both(self):
        folder = write_checkpoint(self.folder, dense_head())
        rest = {n: t for n, t in dense_head().items() if n != "mtp.fc.weight"}
        wrong = {"model-1.safetensors": {"mtp.fc.weight": bf16(1)}, SHARD: rest}
        write_index(folder, wrong)
        with self.assertRaises(IncompleteHeadError) as caught:
            plan_head(folder, DENSE_CONFIG)
        (problem,) = caught.exception.problems
        self.assertEqual(problem.name, "mtp.fc.weight")
        self.assertEqual(problem.shard, "model-1.safetensors")
        self.assertIn(SHARD, problem.found)

    def test_an_index_alone_is_checked_by_names(self):
        head = dense_head()
        del head["mtp.fc.weight"]
        write_index(self.folder, {"model-9.safetensors": head})
        with self.assertRaises(IncompleteHeadError) as caught:
            plan_head(self.folder / "model.safetensors.index.json", DENSE_CONFIG)
        (problem,) = caught.exception.problems
        self.assertEqual(problem.name, "mtp.fc.weight")


class TestHeadAgainstConfig(HeadTestCase):
    def test_more_layers_than_weights(self):
        config = with_text(DENSE_CONFIG, mtp_num_hidden_layers=2)
        contradiction, *missing = self.error_of(dense_head(), config).problems
        self.assertIs(contradiction.kind, ProblemKind.CONFIG)
        self.assertEqual(contradiction.name, "mtp_num_hidden_layers")
        self.assertEqual(contradiction.found, "2")
        self.assertTrue(contradiction.expected.startswith("1,"))
        self.assertEqual(len(missing), 11)
        self.assertTrue(all(p.name.startswith("mtp.layers.1.") for p in missing))

    def test_fewer_layers_than_weights(self):
        for configured in (0, 1):
            config = with_text(DENSE_CONFIG, mtp_num_hidden_layers=configured)
            contradiction, *left_over = self.error_of(dense_head(2), config).problems
            self.assertEqual(contradiction.name, "mtp_num_hidden_layers")
            self.assertEqual({p.kind for p in left_over}, {ProblemKind.LEFT_OVER})
            self.assertEqual(len(left_over), 11 * (2 - configured))

    def test_another_number_of_experts(self):
        config = with_text(MOE_CONFIG, num_experts=3)
        names = [p.name for p in self.error_of(moe_head(), config).problems]
        self.assertEqual(names[0], "num_experts")
        self.assertIn(f"{MLP}.gate.weight", names)
        self.assertIn(f"{MLP}.experts.3.up_proj.weight", names)

    def test_another_kind_of_mlp(self):
        for head, config, found in (
            (moe_head(), DENSE_CONFIG, "a dense model"),
            (dense_head(), MOE_CONFIG, "a mixture-of-experts model"),
        ):
            problem = self.error_of(head, config).problems[0]
            self.assertIs(problem.kind, ProblemKind.CONFIG)
            self.assertEqual(problem.found, found)

    def test_a_dropped_head_is_said_in_plain_words_with_two_ways_on(self):
        error = self.error_of({})
        self.assertNotIsInstance(error, NoHeadError)
        for words in (
            "mtp_num_hidden_layers = 1",
            "not one mtp.* tensor",
            "dropped the head",
            "Use a checkpoint whose MTP head is complete",
            "without --speculative-algorithm",
        ):
            self.assertIn(words, str(error))

    def test_a_model_that_never_had_a_head(self):
        for layers in (0, None):
            config = with_text(DENSE_CONFIG, mtp_num_hidden_layers=layers)
            error = self.error_of({}, config)
            self.assertIsInstance(error, NoHeadError)
            self.assertNotIn("dropped", str(error))

    def test_a_renamed_head_is_not_called_dropped(self):
        head = {f"model.{name}": tensor for name, tensor in dense_head().items()}
        text = str(self.error_of(head))
        self.assertIn("model.mtp.", text)
        self.assertIn("expected mtp.*", text)


if __name__ == "__main__":
    unittest.main()
