"""The embedded model in modules that DSPy provides: ReAct with tools, and typed output fields."""

from __future__ import annotations

import dspy
import pytest

from programs import build_lm
from programs.offline.question import unfold


def mayor_of(town: str) -> str:
    """Name of the mayor of a town."""
    return {"Oskarby": "Ebba Strand"}[town]


def birth_year(person: str) -> int:
    """Year in which a person was born."""
    return {"Ebba Strand": 1961}[person]


def height_in_metres(mountain):
    return {"Storhaug": 812}[mountain]


INSTRUCTION = "Work one hop at a time. Answer with the value only."


def react(tools, **kwargs):
    return dspy.ReAct(dspy.Signature("question -> answer", INSTRUCTION), tools=tools, **kwargs)


@pytest.mark.parametrize("adapter", [dspy.ChatAdapter(), dspy.JSONAdapter()])
def test_it_chains_the_tools_of_a_react_module_and_finishes(adapter):
    with dspy.context(lm=build_lm("offline"), adapter=adapter):
        found = react([mayor_of, birth_year])(question="In which year was the mayor of Oskarby born?")
    assert found.answer == "1961"
    names = [value for key, value in found.trajectory.items() if key.startswith("tool_name_")]
    assert names == ["mayor_of", "birth_year", "finish"]


def test_a_tool_without_a_description_and_one_that_fails():
    with dspy.context(lm=build_lm("offline")):
        found = react([height_in_metres])(question="What is the height of Storhaug?")
        assert found.answer == "812"
        lost = react([mayor_of, birth_year], max_iters=4)(question="In which year was the mayor of Nowhere born?")
    assert lost.trajectory["observation_0"].startswith("Execution error")
    assert isinstance(lost.answer, str), "a failed tool ends in an answer, never in an unreadable reply"


@pytest.mark.parametrize(
    ("output", "kind"),
    [("int", int), ("float", float), ("bool", bool), ("list[str]", list), ("dict[str, int]", dict)],
)
def test_every_plain_output_type_gets_a_readable_value(output, kind):
    signature = dspy.Signature(f"question, context -> answer: {output}, sure: Literal['high', 'low']")
    with dspy.context(lm=build_lm("offline")):
        found = dspy.ChainOfThought(signature)(
            question="In which year was Ebba Strand born?", context="Ebba Strand was born in 1961 in Oskarby."
        )
    assert isinstance(found.answer, kind) and found.sure in ("high", "low")
    if kind in (int, float):
        assert found.answer == 1961


def test_a_very_long_word_takes_no_time():
    import time

    began = time.perf_counter()
    for word in ("a", "A", "ab-", "a'"):
        unfold(f"What is the last letter of {word * (60_000 // len(word))}?")
    assert time.perf_counter() - began < 2
