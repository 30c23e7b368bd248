"""Prompts matter: each directive is recognised in plain words and changes a stated behaviour of the embedded model."""

from __future__ import annotations

import dspy
import pytest

from programs import build_program
from programs.lms import build_lm
from programs.offline.directives import TABLE, recognise
from programs.offline.traits import Traits, read_traits
from programs.offline.writing import phrase
from programs.prompts import DEFAULT, PLAIN

MANY = [f"What is the height of peak {n}?" for n in range(200)]


@pytest.mark.parametrize("key", sorted(TABLE))
def test_the_engines_own_wording_of_a_directive_is_recognised(key):
    assert key in recognise(TABLE[key].wording)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("Break the question down into parts.", {"chain"}),
        ("Go step by step.", {"chain"}),
        ("Never answer from memory.", {"use_tools"}),
        ("Base your answer on the tool results rather than on guesses or memory.", {"use_tools"}),
        ("Give only the value.", {"bare"}),
        ("Reply with the name alone, nothing else.", {"bare"}),
        ("Dates as YYYY-MM-DD.", {"iso"}),
        ("Write the first name followed by the family name.", {"names"}),
        ("Verify the result before you answer.", {"check"}),
        ("Open the full page and read it.", {"read_page"}),
        ("If a tool returns an error, try again.", {"retry"}),
        ("Delegate each step to a worker.", {"delegate"}),
        ("Report the value with its source.", {"evidence"}),
        ("Answer immediately.", {"hasty"}),
        ("Rely on your own knowledge.", {"memory"}),
        ("You are a helpful expert. The stakes are high.", set()),
    ],
)
def test_other_phrasings_count_too(text, keys):
    assert recognise(text) == keys


@pytest.mark.parametrize(
    "text",
    [
        "Do not answer immediately.",
        "Never rely on your own knowledge.",
        "Avoid answering in full sentences.",
        "Do not write in capital letters.",
    ],
)
def test_a_negated_directive_is_none(text):
    assert not recognise(text) & {"hasty", "memory", "verbose", "capitals"}


def test_the_good_prompts_direct_and_the_plain_ones_do_not():
    assert recognise(DEFAULT["solver"]) >= {"chain", "use_tools", "bare", "iso", "names", "check", "retry"}
    assert recognise(DEFAULT["manager"]) >= {"delegate", "evidence"}
    assert recognise(DEFAULT["tool_caller"]) >= {"chain", "evidence", "retry"}
    assert recognise(DEFAULT["aggregator"]) >= {"bare", "compare"}
    assert not any(recognise(text) for text in PLAIN.values())


def share(found, value, **kwargs):
    written = [phrase(value, Traits(frozenset(found), question), **kwargs) for question in MANY]
    return sum(text == str(value) for text in written) / len(written)


def test_what_value_only_does():
    assert share({"bare"}, 12) == 1
    assert 0.35 < share(set(), 12) < 0.65
    assert share({"bare", "verbose"}, 12) == 0


def test_what_iso_dates_do():
    assert share({"bare", "iso"}, "1912-01-02") == 1
    assert phrase("January 2, 1912", Traits(frozenset({"bare", "iso"}), "q")) == "1912-01-02"
    assert phrase("1912-01-02", Traits(frozenset({"bare"}), "q")) == "January 2, 1912"


def test_what_full_names_do():
    assert share({"bare", "names"}, "Ada Kent", person=True) == 1
    assert 0.35 < share({"bare"}, "Ada Kent", person=True) < 0.65


def test_what_check_does():
    assert phrase(["a", "b"], Traits(frozenset({"bare", "check"}), "q")) == "a, b"
    assert phrase(["a", "b"], Traits(frozenset({"bare"}), "q")) == '["a", "b"]'


def captain_of(ship: str) -> str:
    """The captain of a ship."""
    return {"Sea Wren": "Ole Brandt", "Alm Star": "Ida Moll"}[ship]


def birth_year(person: str) -> int:
    """Birth year of a person."""
    return {"Ole Brandt": 1874, "Ida Moll": 1901}[person]


def digit_sum(number: int) -> int:
    """Sum of the digits of a number."""
    return sum(map(int, str(number)))


def strict_captain(ship: str) -> str:
    """The captain of a ship."""
    known = {"Sea Wren (ship)": "Ole Brandt"}
    if ship not in known:
        raise KeyError(f"unknown ship: '{ship}'. Known: {', '.join(known)}")
    return known[ship]


def run(instruction, question, tools, demos=()):
    program = build_program("single", prompts="plain")
    program.solver.signature = program.solver.signature.with_instructions(instruction)
    program.solver.demos = list(demos)
    with dspy.context(lm=build_lm("offline"), trace=None):
        return program(question=question, tools=tools, answer_format="a value")


def calls_of(prediction):
    return [call["name"] for agent in prediction.trajectory for step in agent["steps"] for call in step["calls"]]


SHIPS = [
    f"What is the sum of the digits of the birth year of the captain of the ship {name}?"
    for name in ("Sea Wren", "Alm Star")
]
CHAIN = ["captain_of", "birth_year", "digit_sum"]


def test_one_hop_at_a_time_takes_every_hop():
    for question in SHIPS:
        assert (
            calls_of(run("One hop at a time. Compute with a tool.", question, [captain_of, birth_year, digit_sum]))
            == CHAIN
        )


def test_answering_at_once_stops_after_the_first_hop():
    prediction = run("Answer at once. Only the value, full names.", SHIPS[0], [captain_of, birth_year, digit_sum])
    assert calls_of(prediction) == CHAIN[:1]
    assert prediction.answer == "Ole Brandt"


def test_an_error_text_is_used_only_when_told_to():
    question = "What is the birth year of the captain of the ship Sea Wren?"
    tools = [strict_captain, birth_year]
    told = run("One hop at a time. When a call fails, read the error text. Only the value.", question, tools)
    assert told.answer == "1874"
    assert calls_of(told) == ["strict_captain", "strict_captain", "birth_year"]
    left = run("One hop at a time. Only the value.", question, tools)
    assert left.answer != "1874"


def test_demos_that_show_tool_steps_teach_the_chain():
    demo = dspy.Example(
        question="Who?", answer_format="a value", tools="captain_of", trajectory="(no steps yet)", thought="look it up",
        tool_calls=dspy.ToolCalls.from_dict_list([{"name": "captain_of", "args": {"ship": "X"}}]), answer=None,
    )  # fmt: skip
    for question in SHIPS:
        prediction = run("Answer the question.", question, [captain_of, birth_year, digit_sum], [demo])
        assert calls_of(prediction) == CHAIN


def test_directives_in_questions_and_results_do_not_count():
    class Shown:
        instruction, demos, latent = "Answer the question.", (), ""

        @staticmethod
        def get(name):
            return "One hop at a time, value only: who is it?" if name == "question" else ""

    assert not read_traits(Shown).found
