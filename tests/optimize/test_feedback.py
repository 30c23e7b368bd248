"""What a role is told: the score, what its neighbours saw, whom they blame; and what the reflecting model is shown."""

from __future__ import annotations

import dspy
import pytest

from optimize import GEPA
from optimize.candidates import Candidate
from optimize.feedback import feedback_for
from optimize.rows import as_rows
from programs.errors import ConfigurationError
from tests.support.rules import Chain, CountingMetric, RuleEngine, questions, sim_lm


class BlamingEngine(RuleEngine):
    """Blames whoever sent a message that lacks something."""

    def write(self, field, system, user, seed):
        if field == "blame":
            return "I think:\nblame first: it left out the date\n- Blame middle: too long\nblame nobody: x"
        return super().write(field, system, user, seed)


def context_for(level, engine=None, student=None, train=6):
    student = student or Chain()
    method = GEPA(CountingMetric(), feedback=level, prompt_model=sim_lm(engine or BlamingEngine()))
    context = method._context(student, as_rows(questions(train)), as_rows(questions(4, 100)))
    context.evaluate.lm = sim_lm(engine or BlamingEngine())
    context.threads = context.evaluate.threads = 2
    return context


def one_row(context, text="You are the middle. Do your part."):
    changed = Candidate.of(context.program).with_instructions({"middle": text})
    return context.evaluate(changed, context.train[:1])[0]


def test_plain_is_the_metrics_own_sentence():
    context = context_for("plain")
    row = one_row(context)
    assert feedback_for(context, row, "middle") == row.feedback
    assert "lacks first:[R01]" in row.feedback


def test_topology_adds_what_the_role_got_and_sent_and_what_its_consumers_made_of_it():
    context = context_for("topology")
    context.ensure_graph()
    row = one_row(context)
    text = feedback_for(context, row, "middle")
    assert row.feedback in text
    assert f"message: {row.outputs['first'][0]['out']}" in text
    assert f"What middle sent: out: {row.outputs['middle'][0]['out']}" in text
    assert f"last read it and wrote: out: {row.outputs['last'][0]['out']}" in text
    assert "read it" not in feedback_for(context, row, "last"), "the last role has no consumers"


def test_blame_adds_a_sentence_of_each_consumer_about_this_role_only():
    engine = BlamingEngine()
    context = context_for("blame", engine)
    context.ensure_graph()
    row = one_row(context)
    text = feedback_for(context, row, "first")
    assert "Blame from middle: it left out the date" in text and "nobody" not in text and "too long" not in text
    assert "Blame from last: too long" in feedback_for(context, row, "middle")
    assert context.ledger.counts["judge_calls"] == 2
    assert "Blame" not in feedback_for(context, row, "last")


def test_nobody_is_blamed_for_a_right_answer_and_an_unreadable_judge_blames_nobody():
    engine = BlamingEngine({"first": "", "middle": "", "last": ""})
    context = context_for("blame", engine)
    context.ensure_graph()
    assert "Blame" not in feedback_for(context, one_row(context), "first")
    assert context.ledger.counts["judge_calls"] == 0
    garbage = context_for("blame", RuleEngine(style="garbage"))
    garbage.ensure_graph()
    assert "Blame" not in feedback_for(garbage, one_row(garbage), "first")
    assert garbage.ledger.counts["parse_failures"] == 1


def test_a_graph_that_cannot_be_inferred_is_asked_for_by_name():
    with pytest.raises(ConfigurationError, match="role_graph"):
        context_for("topology", train=2).ensure_graph()


@pytest.mark.parametrize("level", ["plain", "topology", "blame"])
def test_gepa_shows_feedback_per_role_and_no_validation_answer(level):
    engine = BlamingEngine()
    lm = sim_lm(engine)
    with dspy.context(lm=lm):
        rows = [dspy.Example(question=f"question {i}", answer="right").with_inputs("question") for i in range(9)]
        held = [
            dspy.Example(question=f"question {i}", answer="VALGOLD").with_inputs("question") for i in range(300, 306)
        ]
        GEPA(CountingMetric(), feedback=level, max_rollouts=60, prompt_model=lm).compile(
            Chain(), trainset=rows, valset=held
        )
    reflections = [t for t in engine.texts if "new_instruction" in t]
    assert reflections and not any("VALGOLD" in t for t in engine.texts)
    assert any(("read it and wrote" in t) == (level != "plain") for t in reflections)
