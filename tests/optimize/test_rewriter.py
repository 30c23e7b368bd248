"""Rewriting: what is accepted as an instruction, how often a model is asked again, and what happens then."""

from __future__ import annotations

import dspy
import pytest

from optimize import rewriter
from tests.support.graphs import context_for, team_world

SEED = "You are the a. Do your part. Keep `tool_x` and {question}."


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("plain", "plain"),
        ("```\nfenced\nlines\n```", "fenced\nlines"),
        ("```text\nfenced\n```", "fenced"),
        ('"quoted"', "quoted"),
        ('"a" and "b"', '"a" and "b"'),
        ("  spaced \n", "spaced"),
        (None, ""),
    ],
)
def test_wrapping_around_a_whole_reply_is_taken_off(reply, text):
    assert rewriter.clean(reply) == text


def replies(*texts):
    asked = []

    def write(attempt):
        asked.append(attempt)
        return texts[attempt]

    return write, asked


def test_a_text_that_breaks_the_contract_is_asked_for_again_up_to_three_times():
    good = "A better text with `tool_x` and {question}."
    write, asked = replies("lost everything", "", good)
    found = rewriter.guarded(write, parent=SEED, seed=SEED)
    assert found.text == good and len(found.problems) == 2 and "lost" in found.problems[0]
    write, asked = replies("no", None, "no")
    found = rewriter.guarded(write, parent=SEED, seed=SEED)
    assert found.text is None and asked == [0, 1, 2]
    assert found.problems[1] == rewriter.UNREADABLE


def test_an_unchanged_text_ends_the_attempts():
    write, asked = replies(f" {SEED}\n", "never", "never")
    found = rewriter.guarded(write, parent=SEED, seed=SEED)
    assert found == rewriter.Proposal(None, (rewriter.UNCHANGED,)) and asked == [0]


def test_a_huge_text_is_refused():
    write, _ = replies(*["x" * 10_000 + " `tool_x` {question}"] * 3)
    assert rewriter.guarded(write, parent=SEED, seed=SEED).text is None


def test_the_trust_region_refuses_texts_far_from_their_parent():
    parent = "one two three four five six"
    check = rewriter.too_far(parent, 0.5)
    assert check("one two three four five six seven") is None
    assert check("something entirely different") is not None
    assert rewriter.similarity(parent, parent) == 1.0


@pytest.mark.parametrize(
    ("reply", "texts"),
    [
        ("one\n=====\ntwo\n=====\nthree", ["one", "two", "three"]),
        ("=====\none\n\n=====\n\none\n=====\n", ["one"]),
        ("1. one\n2. two\nmore\n3) three", ["one", "two\nmore", "three"]),
        ("- one\n- two", ["one", "two"]),
        ("only one text\nwith two lines", ["only one text\nwith two lines"]),
        ("", []),
        (None, []),
    ],
)
def test_variants_are_parts_between_markers_or_items_or_the_whole(reply, texts):
    assert rewriter.parse_variants(reply, 4) == texts


def test_no_more_variants_than_asked_for():
    assert rewriter.parse_variants("a\n=====\nb\n=====\nc", 2) == ["a", "b"]


@pytest.mark.parametrize(
    ("style", "written"), [("hint", 4), ("same", 0), ("empty", 0), ("garbage", 0), ("huge", 0), ("destroy", 1)]
)
def test_variants_of_a_real_call(style, written):
    program, _engine, lm = team_world(style=style)
    text = "You are the a. Do your part."
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        found = rewriter.variants(context, "a", text, seed=text, count=4)
    kept = {p.text for p in found if p.text}
    assert len(kept) <= max(1, written) and text not in kept
    assert bool(kept) == bool(written)
    assert context.ledger.counts["rewrite_calls"] == 1


def test_one_rewrite_sees_the_feedback_and_keeps_the_rest():
    program, _engine, lm = team_world()
    parent = "You are the a. Do your part."
    inputs = {
        "role": "a",
        "operation": rewriter.OPERATORS["adding"],
        "team_feedback": "0 of 3 runs succeeded.",
        "role_feedback": "from the score: lacks a:[R05]",
        "variation": 1,
    }
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        found = rewriter.rewrite(context, rewriter.RewriteInstruction, inputs, parent=parent, seed=parent)
    assert found.text == f"{parent} [R05]"
