"""Traps of multi-agent suites that reach over several packages; those within a program are in tests/programs."""

from __future__ import annotations

import copy
import json

import cloudpickle
import dspy
import pytest

from metrics.evaluate import evaluate
from optimize.candidates import Candidate, Roles
from optimize.evaluation import Evaluator
from optimize.ledger import BudgetLedger
from optimize.rows import as_rows
from optimize.scoring import TaskScoring
from programs import build_program
from programs.registry import PROGRAMS
from tests.support.flow_engine import FlowEngine
from tests.support.flow_script import TeamScript
from tests.support.runs import WordTask

VOTING = ("independent", "decentralized")


def seen(engine):
    """What the model was asked, whatever the order of threads."""
    return sorted((call.key, call.system, call.user) for call in engine.calls)


def evaluated(name, script, n=3):
    engine = FlowEngine(script)
    with dspy.context(lm=engine.lm):
        return evaluate(build_program(name), WordTask(n), threads=2), engine


def optimized_on(name, script, n=3):
    """The same rows as an optimizer meets them."""
    engine, task, program = FlowEngine(script), WordTask(n), build_program(name)
    runner = Evaluator(
        program, TaskScoring(task), BudgetLedger(100), Roles(program), lm=engine.lm, threads=2, pauses=(0.0, 0.0)
    )
    return runner(Candidate.of(program), as_rows(task.examples)), engine


class TestOneProgramForOptimizingAndReporting:
    @pytest.mark.parametrize("name", VOTING)
    def test_the_vote_is_what_is_optimized_not_one_member(self, name):
        def answer(call):
            return "wrong" if call.index == 0 else "w" + call.fields["question"].split()[-1]

        summary, asked = evaluated(name, TeamScript(answers=answer))
        rows, asked_again = optimized_on(name, TeamScript(answers=answer))
        assert summary["accuracy"] == 1.0 and [row.score for row in rows] == [1.0] * 3
        assert [row.answer for row in rows] == [row["predicted_answer"] for row in summary["rows"]]
        assert seen(asked) == seen(asked_again)

    @pytest.mark.parametrize("name", PROGRAMS)
    def test_prompts_limits_and_contract_are_the_same(self, name):
        script = TeamScript(tool_steps=20, delegations=[["tool_caller"]] * 30)  # every limit is reached
        summary, asked = evaluated(name, script, n=1)
        rows, asked_again = optimized_on(name, script, n=1)
        assert seen(asked) == seen(asked_again) and len(asked.calls) == summary["lm_calls"]
        assert rows[0].answer == summary["rows"][0]["predicted_answer"]


class TestErrorsOfAgentsAreTheRows:
    @pytest.mark.parametrize(
        ("name", "key"),
        [
            ("independent", ("solver", 3, 1)),
            ("sequential", ("checker", 0, 1)),
            ("centralized", ("tool_caller", 0, 1)),
            ("decentralized", ("debater", 1, 2)),
            ("agent_as_tool", ("tool_caller", 0, 1)),
        ],
    )
    def test_a_dead_endpoint_of_one_agent_is_an_error_and_no_wrong_answer(self, name, key):
        script = TeamScript(errors={key: dspy.LMServerError("502 bad gateway")})
        summary, _ = evaluated(name, script)
        assert (summary["n_scored"], summary["n_errors"], summary["accuracy"]) == (0, 3, None)
        assert {row["error"]["kind"] for row in summary["rows"]} == {"model"}
        assert all(row["correct"] is None and "502 bad gateway" in row["error"]["message"] for row in summary["rows"])


class TestThreads:
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_a_run_leaves_no_new_attribute_on_the_program_which_others_may_be_looking_through(self, name):
        program, engine = build_program(name), FlowEngine(TeamScript())
        before = set(vars(program))
        with dspy.context(lm=engine.lm):
            program(question="word 1", tools=[])
        assert set(vars(program)) == before


class TestCopies:
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_copies_and_pickles_keep_one_predictor_per_role_and_their_models(self, name):
        role = build_program(name).roles()[0]
        program = build_program(name, role_models={role: FlowEngine(TeamScript()).lm})
        predictor = getattr(program, role)
        predictor.signature = predictor.signature.with_instructions("Rewritten.")
        for twin in (copy.deepcopy(program), program.deepcopy(), cloudpickle.loads(cloudpickle.dumps(program))):
            assert [n for n, _ in twin.named_predictors()] == program.roles()
            own = getattr(twin, role)
            assert own is not predictor and own.signature.instructions == "Rewritten."
            assert own in twin.predictors() and twin.hyperparameters() == program.hyperparameters()
            assert json.dumps(twin.dump_state()) == json.dumps(program.dump_state())
            own.signature = own.signature.with_instructions("Changed in the copy.")
            assert predictor.signature.instructions == "Rewritten."
        assert program.deepcopy().role_models.models == program.role_models.models
