"""One budget per question: limits, shares that do not depend on timing, and what reaching it does."""

from __future__ import annotations

import pickle
import time

import dspy

from programs import build_program
from programs.budget import QuestionBudget
from programs.parallel import run_side_by_side
from tests.support.engines import ScriptedEngine, act, fields_of, finish_role, make_lm, say


def test_limits_are_named():
    budget = QuestionBudget(2, tokens=100, usd=1.0)
    assert budget.refusal() is None
    budget.record(calls=2)
    assert budget.refusal() == "budget_calls"
    assert QuestionBudget(2, seconds=-1).refusal() == "budget_time"
    budget = QuestionBudget(9, tokens=100, usd=1.0)
    budget.record(tokens=100)
    assert budget.refusal() == "budget_tokens"
    budget = QuestionBudget(9, usd=1.0)
    budget.record(usd=1.5)
    assert budget.refusal() == "budget_usd"


def test_shares_are_fixed_before_the_agents_start_and_handed_back():
    budget = QuestionBudget(10, tokens=11)
    budget.record(calls=3, tokens=0)
    shares = budget.split(3, deeper=True)
    assert [share.calls for share in shares] == [3, 2, 2]
    assert [share.tokens for share in shares] == [4, 4, 3]
    assert all(share.depth == 2 and not share.may_delegate() for share in shares)
    shares[0].record(calls=2)
    budget.join(shares)
    assert budget.used_calls == 5


def test_a_budget_survives_pickling():
    budget = pickle.loads(pickle.dumps(QuestionBudget(3)))
    budget.record()
    assert budget.used_calls == 1


def test_side_by_side_joins_traces_by_index_and_raises_the_first_error():
    def task(i, delay):
        def run():
            time.sleep(delay)
            dspy.settings.trace.append(i)
            return i

        return run

    with dspy.context(trace=[]):
        assert run_side_by_side([task(0, 0.05), task(1, 0.0), task(2, 0.02)]) == [0, 1, 2]
        assert dspy.settings.trace == [0, 1, 2]

    def fail(word):
        def run():
            raise ValueError(word)

        return run

    try:
        run_side_by_side([task(0, 0), fail("first"), fail("second")])
    except ValueError as error:
        assert str(error) == "first"


def test_reaching_the_budget_forces_the_final_answer_once_and_is_recorded():
    engine = ScriptedEngine(
        lambda request: say("7") if "final call:" in fields_of(request)["trajectory"] else act(("f", {"x": "1"}))
    )

    def f(x: str) -> str:
        return f"{time.perf_counter_ns()}"

    with dspy.context(lm=make_lm(engine), question_budget=QuestionBudget(3)):
        prediction = build_program("single")(question="q", tools=[f])
    assert prediction.answer == "7"
    assert prediction.stopped == "budget_calls"
    assert prediction.forced
    assert not prediction.exhausted
    assert len(engine.requests) == 4
    assert "the question's budget is used up" in fields_of(engine.requests[-1])["trajectory"]


def test_a_deadline_of_the_evaluation_is_obeyed():
    engine = ScriptedEngine(finish_role)
    with dspy.context(lm=make_lm(engine), question_deadline=time.monotonic() - 1):
        prediction = build_program("single")(question="q")
    assert prediction.stopped == "budget_time"
    assert len(engine.requests) == 1


def test_a_team_out_of_budget_still_answers_with_one_call():
    engine = ScriptedEngine(finish_role)
    with dspy.context(lm=make_lm(engine), question_budget=QuestionBudget(0)):
        prediction = build_program("centralized")(question="q")
    assert prediction.answer == "42"
    assert prediction.stopped == "budget_calls"
    assert len(engine.requests) == 1
