"""NEXTN as a member of the algorithms."""

import unittest

from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=5, suite="base-a-test-cpu")


class TestNextnSpecInfo(CustomTestCase):
    def test_the_name_gives_the_member_in_every_case(self):
        for name in ("NEXTN", "nextn", "NextN"):
            algorithm = SpeculativeAlgorithm.from_string(name)
            self.assertIs(algorithm, SpeculativeAlgorithm.NEXTN)

    def test_nextn_answers_is_eagle_since_other_programs_ask_it(self):
        nextn = SpeculativeAlgorithm.NEXTN
        self.assertTrue(nextn.is_eagle())
        self.assertTrue(nextn.is_nextn())
        self.assertTrue(nextn.is_speculative())
        self.assertFalse(nextn.is_eagle3())
        self.assertFalse(nextn.is_frozen_kv_mtp())

    def test_eagle_keeps_meaning_eagle(self):
        eagle = SpeculativeAlgorithm.from_string("EAGLE")
        self.assertIs(eagle, SpeculativeAlgorithm.EAGLE)
        self.assertTrue(eagle.is_eagle())
        self.assertFalse(eagle.is_nextn())

    def test_whatever_eagle_supports_nextn_supports(self):
        questions = [
            name
            for name in vars(SpeculativeAlgorithm)
            if name.startswith(("supports_", "has_", "carries_", "need_"))
        ]
        self.assertGreaterEqual(len(questions), 5)
        for question in questions:
            with self.subTest(question=question):
                eagle, nextn = (
                    getattr(algorithm, question)()
                    for algorithm in (
                        SpeculativeAlgorithm.EAGLE,
                        SpeculativeAlgorithm.NEXTN,
                    )
                )
                self.assertEqual(eagle, nextn)

    def test_a_plugin_cannot_take_the_name(self):
        self.assertTrue(SpeculativeAlgorithm.NEXTN)
        with self.assertRaisesRegex(ValueError, "NEXTN"):
            SpeculativeAlgorithm.register("NEXTN")(lambda server_args: object)

    def test_a_plugin_answers_is_nextn(self):
        plugin = CustomSpecAlgo("MINE", lambda server_args: object)
        self.assertIs(plugin.is_nextn(), False)


if __name__ == "__main__":
    unittest.main()
