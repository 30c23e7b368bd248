"""Every method as a plain teleprompter: `compile(student, trainset=, valset=)`, on good and on hostile ground."""

from __future__ import annotations

import cloudpickle
import dspy
import pytest

from metrics.errors import ConfigurationError, InfrastructureError
from optimize import GEPA, MIPRO, Bootstrap, Identity
from optimize.candidates import Candidate
from optimize.stops import JobInterrupted, ProgramBug
from tests.support.rules import Chain, CountingMetric, RuleEngine, questions, sim_lm

ALL = [Identity, Bootstrap, MIPRO, GEPA]
SEARCHING = [MIPRO, GEPA]


def compiled(cls, engine=None, metric=None, train=12, validation=9, student=None, **options):
    student = student or Chain()
    options.setdefault("max_rollouts", 120)
    with dspy.context(lm=sim_lm(engine or RuleEngine())):
        method = cls(metric or CountingMetric(), **options)
        valset = questions(validation, 300) if validation else None
        return method.compile(student, trainset=questions(train), valset=valset)


@pytest.mark.parametrize("cls", SEARCHING)
def test_it_finds_the_rules_that_the_feedback_names(cls):
    stats = compiled(cls).optimizer_stats
    assert stats["best_score"] > stats["seed_score"] == 0.0
    assert stats["proposals_tried"] >= stats["proposals_accepted"] > 0
    assert stats["stop_reason"] in ("budget", "perfect", "space exhausted")


@pytest.mark.parametrize("cls", ALL)
def test_the_result_is_an_ordinary_program_and_the_student_is_untouched(cls, tmp_path):
    student = Chain()
    before = Candidate.of(student).to_json()
    result = compiled(cls, student=student)
    assert Candidate.of(student).to_json() == before
    assert "forward" not in vars(result.first) and not result._compiled
    assert Candidate.of(cloudpickle.loads(cloudpickle.dumps(result))).id == Candidate.of(result).id
    result.save(tmp_path / "program.json")
    again = Chain()
    again.load(tmp_path / "program.json")
    assert Candidate.of(again).id == Candidate.of(result).id


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("budget", [1, 2, 7, 30, 61, 300])
def test_metric_calls_never_exceed_the_budget(cls, threads, budget):
    metric = CountingMetric()
    try:
        stats = compiled(cls, metric=metric, max_rollouts=budget, num_threads=threads, final_gate=False).optimizer_stats
    except ConfigurationError as refusal:
        assert "it needs at least" in str(refusal) and metric.calls == 0
        return
    assert metric.calls == stats["counters"]["rollouts"] <= budget


@pytest.mark.parametrize("cls", SEARCHING)
def test_equal_seeds_equal_histories_at_any_thread_count(cls):
    def history(threads, seed):
        engine = RuleEngine(style="random", delay=0.0005)
        return compiled(cls, engine, num_threads=threads, seed=seed).optimizer_stats["history"]

    assert history(1, 0) == history(8, 0)
    assert history(8, 0) != history(8, 1), "seed 0 is a seed of its own"


@pytest.mark.parametrize("cls", SEARCHING)
def test_best_so_far_is_monotone_and_is_what_the_returned_program_scores(cls):
    engine = RuleEngine()
    result = compiled(cls, engine, final_gate=False)
    stats = result.optimizer_stats
    committed = [e["score"] for e in stats["history"] if e["event"] == "committed"]
    assert committed == sorted(committed) and committed[-1] == stats["best_score"]
    with dspy.context(lm=sim_lm(engine)):
        right = [result(question=e.question).answer == "right" for e in questions(9, 300)]
    assert sum(right) / 9 == pytest.approx(stats["best_score"])


@pytest.mark.parametrize("cls", ALL)
def test_a_constant_metric_changes_nothing(cls):
    student = Chain()
    result = compiled(cls, metric=lambda example, prediction: 0.5, student=student)
    assert Candidate.of(result).id == Candidate.of(student).id


@pytest.mark.parametrize("cls", SEARCHING)
@pytest.mark.parametrize("style", ["empty", "garbage", "same", "huge", "destroy"])
def test_hostile_proposals_end_in_the_student_or_better(cls, style):
    class Rewriter(RuleEngine):
        def complete(self, request):
            self.style = "hint"
            user = request.messages[-1].text
            if "message ## ]]" not in user:
                self.style = style
            return super().complete(request)

    result = compiled(cls, Rewriter(needs={"first": "[R01]", "middle": "", "last": ""}))
    stats = result.optimizer_stats
    assert stats["best_score"] >= stats["seed_score"] > 0
    if style != "destroy":
        assert stats["proposals_accepted"] == 0 and Candidate.of(result).id == Candidate.of(Chain()).id


@pytest.mark.parametrize("cls", ALL)
def test_bugs_and_dead_models_are_told_apart(cls):
    def buggy(example, prediction):
        raise KeyError("no such column")

    with pytest.raises(ProgramBug) as bug:
        compiled(cls, metric=buggy)
    assert isinstance(bug.value.__cause__, KeyError)
    dead = RuleEngine(fail=lambda n, text: InfrastructureError("connection refused", "model"))
    with pytest.raises(JobInterrupted, match="refused"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: None)
        compiled(cls, dead)


class One(dspy.Module):
    def __init__(self):
        super().__init__()
        self.first = dspy.Predict(dspy.Signature("question, message -> out", "You are the first."))

    def forward(self, question):
        out = self.first(question=question, message="start").out
        return dspy.Prediction(answer="right" if out.startswith("ok") else "wrong", message=out)


class Frozen(Chain):
    """Every predictor inside a compiled sub-module: nothing to optimize."""

    def __init__(self):
        super().__init__()
        inner = One()
        inner._compiled = True
        self.inner = inner
        for role in self.order:
            delattr(self, role)

    def forward(self, question):
        return self.inner(question=question)


@pytest.mark.parametrize("cls", ALL)
def test_degenerate_programs_and_sets(cls):
    assert compiled(cls, student=One(), max_rollouts=60).optimizer_stats["counters"]["rollouts"] > 0
    tiny = compiled(cls, train=1, validation=1, student=One(), max_rollouts=60)
    assert isinstance(tiny, One)
    held_out = compiled(cls, train=15, validation=0, max_rollouts=60).optimizer_stats
    assert any(e.get("rows") == 5 for e in held_out["history"]), "a third of the training rows is held out"
    with pytest.raises(ConfigurationError, match="empty"):
        cls(CountingMetric()).compile(Chain(), trainset=[])
    with pytest.raises(ConfigurationError, match="metric"):
        cls().compile(Chain(), trainset=questions(4))


@pytest.mark.parametrize("cls", SEARCHING)
def test_a_program_without_anything_to_rewrite_is_refused(cls):
    with pytest.raises(ConfigurationError, match="nothing to optimize"):
        compiled(cls, student=Frozen())


def test_a_predictor_that_is_called_often_is_one_variable():
    class Loop(dspy.Module):
        def __init__(self):
            super().__init__()
            self.first = dspy.Predict(dspy.Signature("question, message -> out", "You are the first."))

        def forward(self, question):
            out = "start"
            for _ in range(3):
                out = self.first(question=question, message=out).out
            return dspy.Prediction(answer="right" if out.startswith("ok") else "wrong", message=out)

    result = compiled(GEPA, student=Loop())
    assert "[R01]" in result.first.signature.instructions


def test_minimum_budgets_at_the_standard_split():
    class Context:
        train, validation = list(range(150)), list(range(50))

    assert GEPA().minimum_budget(Context) == 56
    assert MIPRO().minimum_budget(Context) == 110
    assert GEPA().advised_budget(Context) == 218
