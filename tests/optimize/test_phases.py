"""A whole job: what is in its folder, who is deployed, and that neither threads nor interruptions change anything."""

from __future__ import annotations

import json
import os
import random
import time

import dspy
import pytest

from metrics.errors import ConfigurationError, InfrastructureError
from optimize.job import JobFolder
from optimize.phases import run_job
from optimize.result import result_lines
from optimize.stops import JobInterrupted, ProgramBug
from programs.compiled_file import describe_program, load_program
from tests.optimize.jobs import folder_contents, sim_job, sim_splits
from tests.support import forked
from tests.support.rules import Chain, RuleEngine

METHODS = ["identity", "bootstrap", "mipro", "gepa", "mapro", "maspo", "hivemind"]


@pytest.mark.parametrize("method", ["mipro", "gepa"])
def test_a_job_improves_the_program_and_leaves_everything_on_disk(tmp_path, method):
    job = sim_job(method, budget=150)
    before = dict(job.baseline.instructions)
    result = run_job(job, tmp_path)
    assert result["test"]["delta_pp"] > 0 and result["deployed"] == "incumbent"
    assert result["validation"]["incumbent"]["score"] > result["validation"]["baseline"]["score"]
    assert result["rollouts"] <= 150 and result["proposals_tried"] >= result["proposals_accepted"] > 0
    assert dict(job.baseline.instructions) == before, "the student changed"
    names = set(folder_contents(tmp_path))
    for name in ("job.json", "selection.json", "test.json", "result.json", "program.json",
                 "optimization/rollouts.jsonl", "optimization/log.jsonl",
                 "optimization/learning_curve.csv", "optimization/best.json"):  # fmt: skip
        assert name in names, name
    assert any(name.startswith("optimization/candidates/") for name in names)
    loaded = load_program(tmp_path / "program.json")
    deployed = json.loads((tmp_path / "selection.json").read_text())["candidate"]
    assert {n: p.signature.instructions for n, p in loaded.named_predictors()} == deployed["instructions"]
    assert loaded.first.forward.__func__ is dspy.Predict.forward, "an override is left on the program"
    header = describe_program(tmp_path / "program.json")
    assert header["method"] == method and header["rollouts"] == result["rollouts"]
    Chain().load(tmp_path / "program.json")  # stock DSPy reads it
    text = "\n".join(result_lines(result))
    assert "validation" in text and "tried" in text and "rollouts" in text


def test_the_learning_curve_has_a_point_every_ten_rollouts_and_never_falls(tmp_path):
    run_job(sim_job("gepa", budget=150), tmp_path)
    lines = (tmp_path / "optimization/learning_curve.csv").read_text().splitlines()[1:]
    points = [line.split(",") for line in lines]
    assert [int(p[0]) for p in points] == list(range(0, 151, 10))
    scores = [float(p[1]) for p in points if p[1]]
    assert scores == sorted(scores) and len(set(scores)) > 1


@pytest.mark.parametrize("method", METHODS)
def test_equal_seeds_give_equal_folders_at_any_thread_count_and_seeds_matter(tmp_path, method):
    results = []
    others = [(16, 1)] if method in ("mipro", "gepa") else []
    for k, (threads, seed) in enumerate([(1, 0), (16, 0), *others]):
        engine = RuleEngine(delay=0.0005, style="random")
        run_job(sim_job(method, engine=engine, threads=threads, seed=seed, budget=60), tmp_path / str(k))
        results.append(folder_contents(tmp_path / str(k)))
    assert results[0].keys() == results[1].keys()
    for name in results[0]:
        assert results[0][name] == results[1][name], name
    for other in results[2:]:
        assert results[0]["optimization/log.jsonl"] != other["optimization/log.jsonl"]


@pytest.mark.parametrize("budget", [1, 2, 7, 30, 61, 200])
@pytest.mark.parametrize("method", METHODS)
def test_the_budget_is_never_exceeded_by_an_independent_count_of_program_runs(tmp_path, method, budget):
    class Counted(Chain):
        runs = 0

        def forward(self, question):
            type(self).runs += 1
            return super().forward(question)

    job = sim_job(method, program=Counted(), budget=budget, threads=8)
    job.settings["program"] = "tests.support.rules:Chain"
    try:
        run_job(job, tmp_path, phase="optimize")
    except ConfigurationError as refusal:
        assert Counted.runs == 0 and "it needs at least" in str(refusal)
        return
    outcome = json.loads((tmp_path / "optimization/outcome.json").read_text())
    assert Counted.runs - 1 <= budget, "more runs than the budget (one is the pre-flight)"
    assert outcome["stats"]["counters"]["rollouts"] == Counted.runs - 1


@pytest.mark.parametrize("style", ["garbage", "empty", "same", "huge"])
@pytest.mark.parametrize("method", ["mipro", "gepa"])
def test_useless_proposals_cost_no_trial_and_leave_the_baseline(tmp_path, method, style):
    result = run_job(sim_job(method, optimizer=RuleEngine(style=style)), tmp_path)
    assert result["deployed"] == "baseline" and result["test"]["delta_pp"] == 0
    assert result["proposals_accepted"] == 0
    counters = result["counters"]
    assert result["proposals_refused"] > 0 or counters["parse_failures"] > 0


@pytest.mark.parametrize("method", ["mipro", "gepa"])
def test_a_destructive_proposer_never_gets_deployed(tmp_path, method):
    needs = {"first": "", "middle": "", "last": ""}

    class Fragile(RuleEngine):
        def act(self, system, user):
            broken = "Say nothing" in system
            return "bad lacks first:[R01]" if broken else super().act(system, user)

    result = run_job(sim_job(method, engine=Fragile(needs), optimizer=RuleEngine(style="destroy")), tmp_path)
    assert result["deployed"] == "baseline"
    assert result["validation"]["baseline"]["score"] >= result["validation"]["incumbent"]["score"]


def test_a_tie_and_a_regression_keep_the_baseline_with_the_reason(tmp_path):
    from optimize.candidates import Candidate
    from optimize.methods.identity import Identity

    class Picks(Identity):
        def run(self, context):
            changed = context.baseline.with_instructions({"first": self.text})
            context.log.commit(changed, 1.0)
            return changed

    for text, reason in (("You are the first. Please.", "tie"), ("You are the nobody.", "regression")):
        engine = RuleEngine({"first": "", "middle": "", "last": ""})
        engine.act = lambda s, u: "bad" if "nobody" in s or "message ## ]]\nbad" in u else "ok"
        job = sim_job("identity", engine=engine)
        job.method = Picks(final_gate=False)
        job.method.text = text
        result = run_job(job, tmp_path / reason)
        assert (result["deployed"], result["reason"]) == ("baseline", reason)
        assert Candidate.of(load_program(tmp_path / reason / "program.json")).id == job.baseline.id


def test_a_task_model_that_dies_interrupts_the_job_and_resume_pays_nothing_twice(tmp_path):
    whole = run_job(sim_job("gepa", engine=(undisturbed := RuleEngine())), tmp_path / "whole")
    dying = RuleEngine(fail=lambda n, text: InfrastructureError("refused", "model") if n > 120 else None)
    with pytest.raises(JobInterrupted, match="refused"):
        run_job(sim_job("gepa", engine=dying), tmp_path / "cut")
    assert (tmp_path / "cut/optimization/best.json").exists()
    load_program(tmp_path / "cut/optimization/best.json")
    again = RuleEngine()
    result = run_job(sim_job("gepa", engine=again), tmp_path / "cut", resume=True)
    drop = ("wall_s", "counters", "usage", "usage_total")
    assert {k: v for k, v in result.items() if k not in drop} == {k: v for k, v in whole.items() if k not in drop}
    assert again.calls <= undisturbed.calls - 120 + 4 * 3, "calls that were paid for were made again"


def test_a_dead_model_at_the_start_spends_nothing(tmp_path):
    dead = RuleEngine(fail=lambda n, text: InfrastructureError("no key", "model"))
    with pytest.raises(JobInterrupted, match="pre-flight"):
        run_job(sim_job("gepa", engine=dead), tmp_path)
    assert dead.calls == 3 and not (tmp_path / "optimization/rollouts.jsonl").exists()
    with pytest.raises(JobInterrupted, match="reflection model"):
        run_job(sim_job("gepa", optimizer=dead), tmp_path / "b")


def test_an_optimizer_model_that_dies_interrupts_instead_of_wasting_the_budget(tmp_path):
    dying = RuleEngine(fail=lambda n, text: InfrastructureError("quota", "model") if n > 2 else None)
    with pytest.raises(JobInterrupted, match="quota"):
        run_job(sim_job("gepa", optimizer=dying, budget=200), tmp_path)
    result = run_job(sim_job("gepa", optimizer=RuleEngine(), budget=200), tmp_path, resume=True)
    assert result["deployed"] == "incumbent"


@pytest.mark.parametrize("method", METHODS)
def test_a_bug_of_the_program_stops_the_job_with_its_traceback(tmp_path, method):
    class Buggy(Chain):
        def forward(self, question):
            if question.endswith("303"):
                raise ZeroDivisionError("a bug")
            return super().forward(question)

    with pytest.raises(ProgramBug) as caught:
        run_job(sim_job(method, program=Buggy()), tmp_path)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_row_that_is_lost_for_good_invalidates_trials_and_is_reported(tmp_path):
    engine = RuleEngine(
        fail=lambda n, text: InfrastructureError("flaky", "model") if "question 302" in text and "[R0" in text else None
    )
    result = run_job(sim_job("mipro", engine=engine, max_errors=1000), tmp_path)
    assert result["invalid_trials"] > 0
    log = [json.loads(line) for line in (tmp_path / "optimization/log.jsonl").read_text().splitlines()]
    invalid = {e["candidate"] for e in log if e["event"] == "evaluated" and e["score"] is None}
    assert invalid and not invalid & {e["candidate"] for e in log if e["event"] == "committed"}


def test_settings_must_be_the_same_to_resume_and_a_folder_is_not_overwritten_by_accident(tmp_path):
    run_job(sim_job("identity"), tmp_path)
    with pytest.raises(ConfigurationError, match="--resume"):
        run_job(sim_job("identity"), tmp_path)
    with pytest.raises(ConfigurationError, match="budget: 90"):
        run_job(sim_job("identity", budget=91), tmp_path, resume=True)
    run_job(sim_job("identity", budget=91), tmp_path, overwrite=True)


def test_a_second_writer_is_refused(tmp_path):
    first = JobFolder.open(tmp_path, {}, resume=False, overwrite=False)
    with first, pytest.raises(ConfigurationError, match="another process"):
        run_job(sim_job("identity"), tmp_path)


def test_phases_can_be_run_one_by_one_and_in_no_other_order(tmp_path):
    job = sim_job("gepa")
    with pytest.raises(ConfigurationError):
        run_job(job, tmp_path / "a", phase="test")
    with pytest.raises(ConfigurationError, match="not finished"):
        run_job(sim_job("gepa"), tmp_path / "a", phase="validate")
    for phase in ("optimize", "validate", "test"):
        last = run_job(sim_job("gepa"), tmp_path / "b", phase=phase)
    whole = run_job(sim_job("gepa"), tmp_path / "c")
    assert {**last, "wall_s": 0} == {**whole, "wall_s": 0}


def test_a_selection_that_was_edited_keeps_the_test_split_closed(tmp_path):
    run_job(sim_job("gepa"), tmp_path, phase="optimize")
    run_job(sim_job("gepa"), tmp_path, phase="validate")
    path = tmp_path / "selection.json"
    path.write_text(path.read_text().replace("[R01]", "[R99]"))
    with pytest.raises(ConfigurationError, match="changed after it was sealed"):
        run_job(sim_job("gepa"), tmp_path, phase="test")


def test_canaries_reach_no_artifact_and_no_prompt(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-key-1234567890")
    golds = lambda name, i: "right" if name == "train" else f"CANARY-{name}-{i}"  # noqa: E731
    for method in ("mipro", "gepa", "bootstrap"):
        engine = RuleEngine()
        run_job(sim_job(method, engine=engine, splits=sim_splits(gold=golds)), tmp_path / method)
        everything = "\n".join(p.read_text() for p in (tmp_path / method).rglob("*") if p.is_file())
        for text in (everything, "\n".join(engine.texts)):
            assert "CANARY" not in text and "sk-canary" not in text
        assert str(tmp_path) not in everything and os.getcwd() not in everything
        assert "127.0.0.1" not in everything and "api_base" not in everything


def test_zero_demos_means_no_demos(tmp_path):
    engine = RuleEngine(needs={"first": "[R01]", "middle": "", "last": ""})
    run_job(sim_job("mipro", engine=engine, options={"max_demos": 0}), tmp_path)
    assert all(not p.demos for p in load_program(tmp_path / "program.json").predictors())


class Counting(RuleEngine):
    """Writes a line to a file for every call that it answered."""

    def __init__(self, calls):
        super().__init__(delay=0.004)
        self.calls_made = calls

    def complete(self, request):
        reply = super().complete(request)
        with open(self.calls_made, "a") as file:
            file.write("call\n")
        return reply


def go_on(method, out, calls):
    """The job of a process that may be killed."""
    run_job(sim_job(method, engine=Counting(calls), threads=4, budget=60), out, resume=True)


def _run(tmp_path, method, out, kill_after=None):
    calls = tmp_path / f"calls-{out}"
    calls.touch()
    process = forked.start(go_on, method, tmp_path / out, calls, errors=tmp_path / "errors")
    if kill_after is not None:
        while process.is_alive() and calls.read_text().count("\n") < kill_after:
            time.sleep(0.002)
        process.kill()
    process.join()
    assert kill_after is not None or process.exitcode == 0, (tmp_path / "errors").read_text()
    return calls.read_text().count("\n")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_kill_minus_nine_at_drawn_points_and_resume_without_paying_twice(tmp_path, method):
    total = _run(tmp_path, method, "whole")
    rng = random.Random(7)
    points = sorted(rng.sample(range(1, total), 5))
    for point in points:
        paid = _run(tmp_path, method, "cut", kill_after=point)
    paid = _run(tmp_path, method, "cut")
    whole, cut = folder_contents(tmp_path / "whole"), folder_contents(tmp_path / "cut")
    for name in whole:
        assert whole[name] == cut[name], name
    assert paid <= total + len(points) * 4, "a kill loses at most the calls that were in flight"
