"""Votes: who may vote, what merges, who wins."""

from __future__ import annotations

import pytest

from programs.loop_result import LoopResult
from programs.voting import ballot, vote


def key(text):
    return text.casefold().removeprefix("the ").strip(" .")


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        (["A", "B", "B"], 1),
        (["A", "B"], 0),  # a tie goes to the earliest agent
        (["B", "A", "A", "B"], 0),
        (["", "", "Paris", None], 2),  # blanks and failures never win against an answer
        (["The Beatles", "Beatles", "Stones"], 0),  # normalised votes merge, the first raw form is submitted
        (["Stones", "Beatles.", "the beatles"], 1),
        (["", "", None], 0),  # blanks vote when nobody answered
        ([None, "", ""], 1),
        ([None, None], None),
        ([], None),
        ([".", "x"], 1),  # an answer that normalises to nothing is blank
        (["0"], 0),
    ],
)
def test_winner(answers, winner):
    assert vote(answers, key).winner == winner


def test_one_vote_per_agent_and_counts_in_order_of_appearance():
    result = vote(["x", "Y", "y", None, ""], key)
    assert result.counts == {"x": 1, "y": 2}
    assert result.key == "y"
    assert sum(result.counts.values()) == 3


def test_a_key_function_that_returns_nothing_means_blank():
    assert vote(["a", "b"], lambda text: None if text == "a" else text).winner == 1


def test_a_ballot_tells_who_voted_for_what_and_whose_answer_won():
    agents = [LoopResult("solver", i, answer=answer) for i, answer in enumerate(["Rome", "oslo", None, "Oslo"])]
    result = vote([agent.answer for agent in agents], str.casefold)
    votes = ballot(agents, result)
    assert [(v["agent"]["index"], v["answer"], v["key"], v["won"]) for v in votes] == [
        (0, "Rome", "rome", False),
        (1, "oslo", "oslo", True),
        (2, None, None, False),
        (3, "Oslo", "oslo", False),
    ]
