"""Judging: what counts as a score or a choice, and that nothing unreadable ever counts as a win."""

from __future__ import annotations

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimize import judge
from tests.support.graphs import context_for, team_world


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("0.85", 0.85),
        ("Score: .7", 0.7),
        ("1", 1.0),
        ("0", 0.0),
        ("8/10", 0.8),
        ("8 / 10 because", 0.8),
        ("7 out of 10", 0.7),
        ("85%", 0.85),
        ("**0.4**", 0.4),
        ("I give 0.25.", 0.25),
        ("It took 12 steps, so 0.5", 0.5),
        ("", None),
        (None, None),
        ("none", None),
        ("12", None),
        ("-0.5", None),
        ("nan", None),
        ("inf", None),
        ("3/0", None),
        ("v1.2.3", None),
    ],
)
def test_a_score_is_the_first_number_in_range(text, score):
    assert judge.parse_score(text) == pytest.approx(score) if score is not None else judge.parse_score(text) is None


@pytest.mark.parametrize(
    ("text", "n", "scores"),
    [
        ("0.4\n0.6\n0.8", 3, [0.4, 0.6, 0.8]),
        ("1: 0.4\n2: 0.6", 2, [0.4, 0.6]),
        ("1. 0.40\n2. 0.60", 2, [0.4, 0.6]),
        ("Output 1: 0.4\nOutput 2: 0.6", 2, [0.4, 0.6]),
        ("- 4/10\n- 60%", 2, [0.4, 0.6]),
        ("[0.4, 0.6, 0.8]", 3, [0.4, 0.6, 0.8]),
        ("0.4 0.6", 2, [0.4, 0.6]),
        ("Here they are:\n0.4\n0.6", 2, [0.4, 0.6]),
        ("0.4\n0.6", 3, None),
        ("0.4\n0.6\n0.8", 2, None),
        ("0.4\nseventeen", 2, None),
        ("", 2, None),
        ("0.7", 1, [0.7]),
    ],
)
def test_a_list_of_scores_has_exactly_one_per_text(text, n, scores):
    assert judge.parse_scores(text, n) == scores


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("A", "A"),
        ("b", "B"),
        ("**B**", "B"),
        ("(A)", "A"),
        ("tie", "tie"),
        ("Tie.", "tie"),
        ("The better output is B.", "B"),
        ("answer: A", "A"),
        ("Output A is better than output B", None),
        ("A good reply, but both fail", None),
        ("neither", None),
        ("", None),
        (None, None),
        ("AB", None),
    ],
)
def test_a_choice_is_what_the_reply_names_and_nothing_else(text, choice):
    assert judge.parse_choice(text) == choice


@given(st.text(max_size=60))
def test_no_text_breaks_the_parsers(text):
    score = judge.parse_score(text)
    assert score is None or 0 <= score <= 1
    assert judge.parse_choice(text) in ("A", "B", "tie", None)
    scores = judge.parse_scores(text, 2)
    assert scores is None or len(scores) == 2


PAIRS = [({"task": "t", "role": "a"}, "out: ok by a", "out: bad by a"), ({"task": "t", "role": "a"}, "same", " same ")]


@pytest.mark.parametrize(
    ("kind", "credits"), [("true", [1.0, 0.5]), ("first", [0.5, 0.5]), ("garbage", [0.5, 0.5]), ("empty", [0.5, 0.5])]
)
def test_both_orders_must_agree(kind, credits):
    program, _engine, lm = team_world(judge=kind)
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        assert judge.compare(context, judge.CompareOutputs, PAIRS) == credits
        turned = [(common, b, a) for common, a, b in PAIRS]
        assert judge.compare(context, judge.CompareOutputs, turned) == [1 - c for c in credits]
    assert context.ledger.counts["judge_calls"] == 4, "equal texts must not be asked about"
    assert context.ledger.counts["parse_failures"] == (4 if kind in ("garbage", "empty") else 0)


def test_a_position_bias_averages_out_when_the_order_is_hashed():
    program, _engine, lm = team_world(judge="first")
    pairs = [({"task": f"t{n}", "role": "a"}, f"text {n}", f"other {n}") for n in range(200)]
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        found = judge.compare(context, judge.CompareOutputs, pairs, orders="hashed")
        again = judge.compare(context, judge.CompareOutputs, pairs, orders="hashed")
    assert found == again
    assert 0.4 < sum(found) / len(found) < 0.6
    assert context.ledger.counts["judge_calls"] == 400


def test_a_verdict_in_one_order_and_an_unreadable_reply_in_the_other_is_a_tie():
    assert judge._credit([("A", True), (None, False)]) == 0.5
    assert judge._credit([("A", True), ("tie", False)]) == 0.5
    assert judge._credit([("A", True), ("B", False)]) == 1.0
    assert judge._credit([("B", True), ("A", False)]) == 0.0
    assert judge._credit([]) == 0.5


@pytest.mark.parametrize(("kind", "scores"), [("true", [0.9, 0.3]), ("garbage", [0.5, 0.5]), ("empty", [0.5, 0.5])])
def test_scores_are_neutral_when_they_cannot_be_read(kind, scores):
    program, _engine, lm = team_world(judge=kind)
    common = {"role": "a", "role_description": "d", "received": "r", "examples": "(none)"}
    texts = ["out: ok by a", "out: bad by a"]
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        pointwise = [{**common, "output": text} for text in texts]
        assert judge.rate(context, judge.RateOutput, pointwise) == scores
        calls = context.ledger.counts["judge_calls"]
        assert judge.rate_together(context, judge.RateOutputs, judge.RateOutput, [(common, texts)]) == [scores]
    together = context.ledger.counts["judge_calls"] - calls
    assert together == (1 if kind == "true" else 3), "a list that cannot be read is asked text by text"


def test_equal_questions_are_asked_once():
    program, _engine, lm = team_world(judge="noise")
    common = {"role": "a", "role_description": "d", "received": "r", "examples": "(none)", "output": "x"}
    with dspy.context(lm=lm):
        context = context_for(program, lm, num_threads=8)
        found = judge.rate(context, judge.RateOutput, [common] * 5)
    assert len(set(found)) == 1 and context.ledger.counts["judge_calls"] == 1


def test_groups_of_one_text_need_no_list():
    program, _engine, lm = team_world()
    common = {"receiver": "b", "message": "out: ok by a", "examples": "(none)"}
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        groups = [(common, ["one"]), (common, ["one", "two"]), (common, [])]
        found = judge.rate_together(context, judge.RateHandoffs, judge.RateHandoff, groups)
    assert found == [[0.9], [0.9, 0.9], []]
