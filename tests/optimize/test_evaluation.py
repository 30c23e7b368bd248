"""The evaluation helper: budget, order, roles by identity, lost rollouts, bugs, and resuming from a journal."""

from __future__ import annotations

import threading

import dspy
import pytest

from metrics.errors import InfrastructureError
from optimize.candidates import Candidate, Roles
from optimize.evaluation import Evaluator
from optimize.journal import Journal
from optimize.ledger import BudgetLedger
from optimize.replay import ReplayCache
from optimize.rows import as_rows, mean_score
from optimize.scoring import MetricScoring
from optimize.stops import BugFound, EndpointDown
from tests.support.rules import Chain, CountingMetric, RuleEngine, questions, sim_lm


def evaluator(program=None, engine=None, metric=None, budget=100, **options):
    program = program or Chain()
    options.setdefault("pauses", (0.0, 0.0))
    return Evaluator(
        program=program,
        scoring=MetricScoring(metric or CountingMetric()),
        ledger=BudgetLedger(budget),
        roles=Roles(program),
        lm=sim_lm(engine or RuleEngine()),
        **options,
    )


GOOD = {
    "first": "You are the first. Do your part. [R01]",
    "middle": "You are the middle. Do your part. [R02]",
    "last": "You are the last. Do your part. [R03]",
}


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("budget", [0, 1, 2, 7, 30])
def test_the_batch_is_cut_at_the_budget_and_every_run_is_one_metric_call(budget, threads):
    metric = CountingMetric()
    evaluate = evaluator(metric=metric, budget=budget, threads=threads)
    rows = as_rows(questions(12))
    done = evaluate(Candidate.of(evaluate.program), rows)
    assert [row.id for row in done] == [row.id for row in rows[:budget]]
    assert metric.calls == evaluate.ledger.counts["rollouts"] == evaluate.ledger.spent == min(12, budget)
    assert mean_score(done, len(rows)) is None if budget < 12 else mean_score(done, 12) == 0.0
    assert evaluate(Candidate.of(evaluate.program), rows, whole=True) == [] or budget - 12 >= 12


def test_scores_feedback_and_what_each_role_did():
    evaluate = evaluator()
    rows = as_rows(questions(3))
    evaluate.train_ids = frozenset(str(r.id) for r in rows)
    base = Candidate.of(evaluate.program)
    bad = evaluate(base, rows)
    good = evaluate(base.with_instructions(GOOD), rows)
    assert mean_score(bad) == 0.0 and mean_score(good) == 1.0
    assert "lacks first:[R01]" in bad[0].feedback
    assert list(good[0].outputs) == ["first", "middle", "last"]
    assert good[0].inputs["middle"][0]["message"] == good[0].outputs["first"][0]["out"]
    assert evaluate.program.first.signature.instructions == "You are the first. Do your part.", "the student changed"


def test_validation_feedback_holds_nothing_that_the_metric_said():
    evaluate = evaluator()
    row = evaluate(Candidate.of(evaluate.program), as_rows(questions(1)))[0]
    assert "lacks" not in row.feedback and "right" not in row.feedback


def test_traces_are_mapped_by_identity_even_for_equal_roles():
    class Twins(dspy.Module):
        def __init__(self):
            super().__init__()
            same = "You are the first. Do your part."
            self.alpha = dspy.Predict(dspy.Signature("question, message -> out", same))
            self.beta = dspy.Predict(dspy.Signature("question, message -> out", same))

        def forward(self, question):
            a = self.alpha(question=question, message="from nobody").out
            self.beta(question=question, message="one")
            b = self.beta(question=question, message=a).out
            return dspy.Prediction(answer=b)

    evaluate = evaluator(Twins())
    row = evaluate(Candidate.of(evaluate.program), as_rows(questions(1)))[0]
    assert [i["message"] for i in row.inputs["alpha"]] == ["from nobody"]
    assert len(row.inputs["beta"]) == 2 and row.inputs["beta"][1]["message"] == row.outputs["alpha"][0]["out"]


def test_masked_roles_are_not_called_and_no_message_source():
    engine = RuleEngine()
    evaluate = evaluator(engine=engine)
    row = evaluate(Candidate.of(evaluate.program), as_rows(questions(1)), active=frozenset({"first", "last"}))[0]
    assert engine.seen["middle"] == 0 and row.masked == ("middle",)
    assert "middle" not in row.outputs and row.inputs["last"][0]["message"] == ""


def test_lost_rollouts_are_retried_with_the_same_seed_and_never_charged():
    lost = []

    def fail(number, text):
        if "question 3" in text and len(lost) < 2:
            lost.append(text)
            return InfrastructureError("connection reset", "model")
        return None

    engine = RuleEngine(fail=fail)
    evaluate = evaluator(engine=engine, threads=1)
    rows = evaluate(Candidate.of(evaluate.program), as_rows(questions(6)))
    assert all(row.usable for row in rows) and lost[0] == lost[1]
    assert evaluate.ledger.counts["failed_rollouts"] == 2 and evaluate.ledger.spent == 6


def test_a_row_lost_for_good_is_unusable_invalidates_the_trial_and_is_never_scored_zero():
    engine = RuleEngine(fail=lambda n, text: InfrastructureError("no route", "model") if "question 3" in text else None)
    metric = CountingMetric()
    evaluate = evaluator(engine=engine, metric=metric)
    rows = evaluate(Candidate.of(evaluate.program), as_rows(questions(6)))
    assert [row.score for row in rows] == [0, 0, 0, None, 0, 0]
    assert rows[3].error["kind"] == "model" and mean_score(rows, 6) is None
    assert evaluate.ledger.spent == 5 == metric.calls and evaluate.ledger.remaining == 95


def test_a_dead_endpoint_ends_the_search_instead_of_burning_the_budget():
    engine = RuleEngine(fail=lambda n, text: InfrastructureError("refused", "model") if n > 30 else None)
    evaluate = evaluator(engine=engine, threads=4)
    with pytest.raises(EndpointDown, match="refused"):
        evaluate(Candidate.of(evaluate.program), as_rows(questions(60)))
    assert 5 <= evaluate.ledger.spent <= 10 and engine.calls < 150


@pytest.mark.parametrize("where", ["program", "metric"])
def test_a_bug_stops_at_once_with_its_traceback(where):
    class Buggy(Chain):
        def forward(self, question):
            if where == "program" and question.endswith(" 2"):
                return {}["missing"]
            return super().forward(question)

    def metric(example, prediction):
        return {}["missing"] if where == "metric" else 1.0

    evaluate = evaluator(Buggy(), metric=metric, threads=1)
    with pytest.raises(BugFound) as caught:
        evaluate(Candidate.of(evaluate.program), as_rows(questions(50)))
    assert isinstance(caught.value.__cause__, KeyError) and caught.value.__cause__.__traceback__ is not None
    assert evaluate.ledger.counts["rollouts"] <= 2


def test_a_malformed_reply_of_a_foreign_program_is_wrong_and_charged():
    class Plain(dspy.Module):
        def __init__(self):
            super().__init__()
            self.solver = dspy.Predict("question -> number: int, note")

        def forward(self, question):
            return self.solver(question=question)

    class Words(RuleEngine):
        def write(self, field, system, user, seed):
            return "not a number"

    evaluate = evaluator(Plain(), engine=Words())
    rows = evaluate(Candidate.of(evaluate.program), as_rows(questions(2)))
    assert [row.score for row in rows] == [0.0, 0.0] and evaluate.ledger.spent == 2


@pytest.mark.parametrize(
    "metric",
    [
        lambda e, p: 1.0,
        lambda e, p: True,
        lambda e, p, trace: 1,
        lambda e, p, trace, name, pred_trace: dspy.Prediction(score=1.0, feedback="well done"),
        lambda e, p, trace=None, *more: dspy.Prediction(score=1.0),
    ],
)
def test_every_kind_of_metric_is_accepted(metric):
    evaluate = evaluator(metric=metric)
    assert evaluate(Candidate.of(evaluate.program), as_rows(questions(1)))[0].score == 1.0


def test_a_metric_that_returns_nonsense_is_named():
    evaluate = evaluator(metric=lambda e, p: "good")
    with pytest.raises(BugFound, match="must return a number"):
        evaluate(Candidate.of(evaluate.program), as_rows(questions(1)))


@pytest.mark.parametrize("want_trace", [False, True])
def test_a_second_process_finds_its_rollouts_and_calls(tmp_path, want_trace):
    def once(engine, n):
        calls, journal = Journal(tmp_path / "calls.jsonl"), Journal(tmp_path / "rollouts.jsonl")
        evaluate = evaluator(engine=engine, threads=4, replay=ReplayCache(calls), journal=journal)
        base = Candidate.of(evaluate.program)
        rows = as_rows(questions(5))
        result = []
        for k in range(n):
            child = base if k % 2 == 0 else base.with_instructions({"middle": GOOD["middle"] + " " * k})
            result.append([(r.score, r.answer) for r in evaluate(child, rows, want_trace=want_trace)])
        calls.close(order=lambda r: r["key"])
        journal.close(order=lambda r: r["order"])
        files = [(tmp_path / name).read_bytes() for name in ("calls.jsonl", "rollouts.jsonl")]
        return result, files, evaluate.ledger.snapshot(), engine.calls

    whole = once(RuleEngine(), 4)
    (tmp_path / "rollouts.jsonl").unlink()
    (tmp_path / "calls.jsonl").unlink()
    once(RuleEngine(), 2)  # interrupted after two batches
    resumed = once(RuleEngine(), 4)
    assert resumed[:3] == whole[:3], "same results, same files, same counts as without the interruption"
    assert resumed[3] == whole[3] - 25, "five rows x (three calls, then two of a changed role and its reader)"


def test_results_do_not_depend_on_the_number_of_threads():
    def once(threads):
        evaluate = evaluator(threads=threads, engine=RuleEngine(delay=0.001))
        base = Candidate.of(evaluate.program)
        rows = as_rows(questions(9))
        first = evaluate(base, rows)
        second = evaluate(base.with_instructions({"middle": GOOD["middle"]}), rows)
        texts = [(r.id, r.score, r.inputs, r.outputs, r.node_calls, r.replayed_calls) for r in first + second]
        return texts, evaluate.ledger.snapshot()

    assert once(1) == once(8)


def test_a_row_that_occurs_twice_in_a_batch_is_paid_for_by_the_first():
    def once(threads):
        evaluate = evaluator(threads=threads, engine=RuleEngine(delay=0.005))
        done = evaluate(Candidate.of(evaluate.program), as_rows(questions(3) + questions(3) + questions(1)))
        return [(row.id, row.node_calls, row.replayed_calls) for row in done], evaluate.ledger.spent

    assert once(1) == once(8)
    calls, spent = once(8)
    assert [n for _, n, _ in calls] == [3, 3, 3, 0, 0, 0, 0] and spent == 7


def test_a_batch_runs_in_threads():
    here, together = [0], [0]
    lock = threading.Lock()

    class Slow(RuleEngine):
        def complete(self, request):
            with lock:
                here[0] += 1
                together[0] = max(together[0], here[0])
            try:
                return super().complete(request)
            finally:
                with lock:
                    here[0] -= 1

    evaluate = evaluator(engine=Slow(delay=0.02), threads=4)
    evaluate(Candidate.of(evaluate.program), as_rows(questions(8)))
    assert together[0] == 4
