"""NEXTN as a member of the algorithms."""

from __future__ import annotations

import pytest

from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo


@pytest.mark.parametrize("name", ["NEXTN", "nextn", "NextN"])
def test_the_name_gives_the_member_in_every_case(name: str):
    assert SpeculativeAlgorithm.from_string(name) is SpeculativeAlgorithm.NEXTN


def test_nextn_answers_is_eagle_since_other_programs_ask_it():
    nextn = SpeculativeAlgorithm.NEXTN
    assert nextn.is_eagle() and nextn.is_nextn() and nextn.is_speculative()
    assert not nextn.is_eagle3() and not nextn.is_frozen_kv_mtp()


def test_eagle_keeps_meaning_eagle():
    eagle = SpeculativeAlgorithm.from_string("EAGLE")
    assert eagle is SpeculativeAlgorithm.EAGLE
    assert eagle.is_eagle() and not eagle.is_nextn()


def test_whatever_eagle_supports_nextn_supports():
    questions = [
        name
        for name in vars(SpeculativeAlgorithm)
        if name.startswith(("supports_", "has_", "carries_", "need_"))
    ]
    assert len(questions) >= 5
    for question in questions:
        answers = [
            getattr(algorithm, question)()
            for algorithm in (SpeculativeAlgorithm.EAGLE, SpeculativeAlgorithm.NEXTN)
        ]
        assert answers[0] == answers[1], question


def test_a_plugin_cannot_take_the_name():
    with pytest.raises(ValueError, match="NEXTN"):
        SpeculativeAlgorithm.register("NEXTN")(lambda server_args: object)


def test_a_plugin_answers_is_nextn():
    assert CustomSpecAlgo("MINE", lambda server_args: object).is_nextn() is False
