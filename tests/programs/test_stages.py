"""Roles without tools: repair, forced final call, overflow, masks and budgets."""

from __future__ import annotations

import dspy
import pytest

from programs import build_program
from programs.budget import QuestionBudget
from programs.signatures import aggregator_signature, stage_signature
from programs.stages import run_stage
from tests.support.engines import ScriptedEngine, chat_reply, field_of, make_lm

INPUTS = {"question": "Q?", "answer_format": "short", "reports": "=== from a ===\nit is 5"}


def aggregate(replies, inputs=None, **context):
    engine = ScriptedEngine(replies)
    predictor = dspy.Predict(aggregator_signature("aggregator", "x"))
    with dspy.context(lm=make_lm(engine), **context):
        return run_stage(predictor, role="aggregator", inputs=inputs or INPUTS), engine


def test_one_call_is_enough():
    result, engine = aggregate([chat_reply(reasoning="r", answer="5")])
    assert (result.final_text, result.n_lm_calls, result.forced, result.stopped) == ("5", 1, False, None)
    assert result.steps[0]["thought"] == "r"
    assert len(engine.requests) == 1


def test_an_unreadable_reply_is_repaired_once_then_its_text_is_used():
    result, engine = aggregate(["It is 5", chat_reply(reasoning="r", answer="5")])
    assert (result.final_text, result.parse_errors, result.n_lm_calls, result.forced) == ("5", 1, 2, False)
    assert "could not be read" in field_of(engine.requests[1], "answer_format")
    result, _ = aggregate(["It is 5", "It is 5!"])
    assert (result.final_text, result.parse_errors, result.stopped) == ("It is 5!", 2, None)


def test_no_answer_gets_the_forced_final_call_with_the_reason():
    result, engine = aggregate([chat_reply(reasoning="r", answer="None"), chat_reply(reasoning="r", answer="5")])
    assert (result.final_text, result.forced, result.n_lm_calls) == ("5", True, 2)
    assert "final call: you stopped without a final answer" in field_of(engine.requests[1], "answer_format")
    result, _ = aggregate([chat_reply(reasoning="r", answer="")])
    assert (result.final_text, result.forced, result.stopped) == ("", True, "no_answer")


def test_overflow_shortens_the_inputs_once_then_is_a_labelled_error():
    long = {**INPUTS, "reports": "x" * 50_000}

    def reply(request):
        if len(field_of(request, "reports")) > 10_000:
            return dspy.ContextWindowExceededError(message="too long")
        return chat_reply(reasoning="r", answer="5")

    result, _ = aggregate(reply, long)
    assert (result.final_text, result.error, result.stopped) == ("5", None, None)
    result, engine = aggregate(lambda request: dspy.ContextWindowExceededError(message="too long"))
    assert result.error["kind"] == result.stopped == "context_overflow"
    assert len(engine.requests) == 2


def test_infrastructure_errors_go_through():
    with pytest.raises(dspy.LMServerError):
        aggregate([dspy.LMServerError("500")])


def test_a_masked_stage_and_one_out_of_budget_make_no_call():
    result, engine = aggregate([chat_reply(reasoning="r", answer="5")], active_roles=frozenset({"solver"}))
    assert (result.masked, result.final_text, engine.requests) == (True, "", [])
    engine = ScriptedEngine([chat_reply(thought="t", report="plan")])
    predictor = dspy.Predict(stage_signature("planner", "x"))
    inputs = {"question": "Q?", "context": "(none)", "answer_format": "short"}
    with dspy.context(lm=make_lm(engine), question_budget=QuestionBudget(0)):
        result = run_stage(predictor, role="planner", inputs=inputs)
    assert (result.stopped, result.n_lm_calls) == ("budget_calls", 0)


def test_overflow_of_the_answering_role_is_in_the_prediction():
    engine = ScriptedEngine(lambda request: dspy.ContextWindowExceededError(message="too long"))
    with dspy.context(lm=make_lm(engine)):
        for name in ("single", "centralized"):
            prediction = build_program(name)(question="q")
            assert prediction.error["kind"] == "context_overflow"
            assert (prediction.answer, prediction.stopped) == ("", "context_overflow")
