"""Blame travels from the sinks upwards, only along edges, only after failures, and carries what was said before."""

from __future__ import annotations

import re

import dspy
import pytest

from optimize import blame
from optimize.candidates import Candidate
from tests.support.graphs import CHAIN, DIAMOND, STAR, context_for, field_of, solved, team_world


def failed_rows(context, n=3, texts=None):
    base = Candidate.of(context.program)
    return context.evaluate(base.with_instructions(texts or {}), context.train[:n])


def consumers(engine):
    return [field_of(user, "your_role") for field, user in engine.asked if field == "blame"]


def test_the_order_is_reverse_topological_and_sources_are_never_asked():
    program, engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context = context_for(program, lm, num_threads=1)
        said = blame.propagate(context, program.role_graph(), failed_rows(context, 3))
    assert consumers(engine) == ["d"] * 3 + ["c"] * 3 + ["b"] * 3
    assert set(said) == set("abcd")
    assert context.ledger.counts["judge_calls"] == 9 and context.ledger.spent == 3


def test_sinks_hear_the_score_and_senders_hear_their_readers():
    program, _engine, lm = team_world(CHAIN, every_role=True)
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        said = blame.propagate(context, program.role_graph(), failed_rows(context, 1))
    assert any(line.startswith("from the score:") and "lacks a:[R00]" in line for line in said["d"])
    assert any(line.startswith("from d: lacks") for line in said["c"])
    assert any(line.startswith("from b: lacks a:[R00]") for line in said["a"])


def test_what_was_said_about_a_role_is_part_of_its_own_call():
    program, engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context = context_for(program, lm, num_threads=1)
        blame.propagate(context, program.role_graph(), failed_rows(context, 1))
    criticism = {field_of(u, "your_role"): field_of(u, "criticism") for f, u in engine.asked if f == "blame"}
    assert criticism["d"].startswith("from the score:")
    assert criticism["c"].startswith("from d:")
    assert criticism["b"].startswith("from c:")


def test_runs_that_went_right_are_not_asked_about():
    program, engine, lm = team_world(CHAIN)
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        said = blame.propagate(context, program.role_graph(), failed_rows(context, 4, solved(program)))
    assert consumers(engine) == [] and all(lines == [] for lines in said.values())


def test_sentences_about_anyone_but_a_sender_are_ignored():
    reply = dspy.Prediction(
        blame="blame w: too short\nBlame q: no such role\n- blame x : fine but late\nOK\nblame m: me"
    )
    assert blame.sentences(reply, ["w", "x"]) == [("w", "too short"), ("x", "fine but late")]
    assert blame.sentences(None, ["w"]) == []
    assert blame.sentences(dspy.Prediction(blame=None), ["w"]) == []


@pytest.mark.parametrize("kind", ["garbage", "empty"])
def test_an_unreadable_critic_blames_nobody(kind):
    program, _engine, lm = team_world(STAR, judge=kind)
    with dspy.context(lm=lm):
        context = context_for(program, lm)
        said = blame.propagate(context, program.role_graph(), failed_rows(context, 2))
    assert said["w"] == said["x"] == said["y"] == [] and said["m"]


def test_what_is_said_is_capped_and_not_repeated():
    program, _engine, lm = team_world(DIAMOND)
    with dspy.context(lm=lm):
        context = context_for(program, lm, train=40)
        rows = failed_rows(context, 40)
        said = blame.propagate(context, program.role_graph(), rows)
    for lines in said.values():
        assert sum(map(len, lines)) <= blame.TOTAL and len(set(lines)) == len(lines)


def test_calls_do_not_depend_on_the_number_of_threads():
    found = []
    for threads in (1, 8):
        program, engine, lm = team_world(DIAMOND)
        with dspy.context(lm=lm):
            context = context_for(program, lm, num_threads=threads)
            said = blame.propagate(context, program.role_graph(), failed_rows(context, 5))
        found.append((said, sorted(re.sub(r"\s+", " ", user) for _, user in engine.asked)))
    assert found[0] == found[1]


def test_later_appearances_speak_under_the_name_of_their_role():
    from programs.centralized import Centralized

    graph = Centralized(team_size=4).role_graph()
    assert blame.senders_of(graph, "manager@2") == ["tool_caller", "checker", "reasoner"]
    assert blame.senders_of(graph, "aggregator") == ["tool_caller", "checker", "reasoner", "manager"]
    assert blame.senders_of(graph, "tool_caller") == ["manager"]
    assert blame.senders_of(graph, "manager") == []
