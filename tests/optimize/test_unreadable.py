"""Runs whose replies cannot be read: the job says so at once and at its end, and why nothing was proposed."""

from __future__ import annotations

import json
import random

import dspy
import pytest

from optimize.methods.gepa import InvalidStep, _Adapter
from optimize.phases import run_job, search_context
from optimize.result import result_lines
from optimize.run import main
from optimize.scoring import Verdict
from programs import build_program
from tests.optimize.jobs import sim_job
from tests.support.rules import RuleEngine


class WantsAnObject(dspy.Module):
    """Asks for a number that the simulated model never writes."""

    def __init__(self):
        super().__init__()
        self.step = dspy.Predict("question -> answer: int")

    def forward(self, question, **rest):
        return self.step(question=question)


def run(tmp_path, method, program=None, **changes):
    said = []
    result = run_job(sim_job(method, program=program, **changes), tmp_path / method, notify=said.append)
    return said, result, result_lines(result)


@pytest.mark.parametrize("method", ["gepa", "bootstrap"])
def test_a_job_whose_replies_cannot_be_read_says_so_and_ends_early(tmp_path, method):
    said, result, lines = run(tmp_path, method, WantsAnObject())
    warned = [line for line in said if line.startswith("WARNING")]
    assert len(warned) == 1 and "answer could not be read from the reply" in warned[0]
    assert said.index(warned[0]) < next(i for i, line in enumerate(said) if "rollouts: best so far" in line)
    assert any("9 of 9 baseline runs on validation could not be read" in warning for warning in result["warnings"])
    proposals = next(line for line in lines if line.startswith("proposals"))
    assert proposals.startswith("proposals   0 tried") and "since no run" in proposals
    assert result["rollouts"] < result["budget"], "the budget is not spent on steps that cannot propose anything"


BABBLE = RuleEngine(style="garbage")  # no reply of it can be read


@pytest.mark.parametrize("method", ["mapro", "maspo", "gepa", "hivemind"])
def test_a_useless_reflection_model_is_named_at_the_end(tmp_path, method):
    _, result, lines = run(tmp_path, method, optimizer=BABBLE)
    (warned,) = result["warnings"]
    assert "replies of the optimizer's model (sim/rules) could not be used" in warned
    bad, of = warned.split()[0:3:2]
    assert bad == of, "every one"
    assert f"WARNING: {warned}" in lines


def test_a_team_of_ours_with_unreadable_replies_is_warned_about_too(tmp_path):
    program = build_program("sequential", team_size=2)
    said, result, _ = run(tmp_path, "identity", program, engine=BABBLE)
    assert any(line.startswith("WARNING: the first run could not be read") for line in said)
    assert any("9 of 9 baseline runs on validation could not be read" in warning for warning in result["warnings"])


def test_a_resumed_job_gives_the_same_warning(tmp_path):
    _, whole, _ = run(tmp_path, "identity", WantsAnObject())
    for name in ("selection.json", "test.json", "result.json"):
        (tmp_path / "identity" / name).unlink()
    again = run_job(sim_job("identity", program=WantsAnObject()), tmp_path / "identity", resume=True)
    assert again["warnings"] == whole["warnings"] and len(whole["warnings"]) == 1


def test_readable_runs_give_no_warning_and_the_control_needs_no_reason(tmp_path):
    said, result, lines = run(tmp_path, "identity")
    assert not [line for line in said if line.startswith("WARNING")] and result["warnings"] == []
    assert next(line for line in lines if line.startswith("proposals")).endswith("unchanged")
    assert " () " not in lines[0], "a program without team size and format has no empty brackets"


def test_the_log_of_gepa_names_the_split_of_every_trial(tmp_path):
    job = sim_job("gepa")
    run_job(job, tmp_path / "gepa")
    log = [json.loads(line) for line in (tmp_path / "gepa/optimization/log.jsonl").read_text().splitlines()]
    trials = {(entry["split"], entry["rows"]) for entry in log if entry["event"] == "evaluated"}
    assert ("validation", 9) in trials and ("train", 9) not in trials
    assert ("train", 3) in trials and ("validation", 3) not in trials


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], "--dataset toolhop-sample"),
        (["--seed", "1", "--metric", "strict"], "--dataset toolhop-sample --seed 1"),
        (
            ["--metric", "tests.optimize.test_unreadable:half"],
            "--dataset toolhop-sample --metric tests.optimize.test_unreadable:half",
        ),
    ],
)
def test_the_closing_screen_names_a_command_only_where_it_measures_the_same(tmp_path, capsys, words, shown):
    folder = tmp_path / "job"
    assert main(["--method", "identity", "--budget", "3", "--program", "single", "--out", str(folder), *words]) == 0
    assert same_rows(capsys) == f"python eval.py --load {folder / 'program.json'} {shown}"


def same_rows(capsys):
    (found,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("same rows ")]
    return found.removeprefix("same rows").strip()


def test_the_command_works_where_there_is_no_clone(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--method", "identity", "--budget", "3", "--program", "single", "--out", "job"]) == 0
    assert same_rows(capsys).startswith("python -m eval --load job/program.json ")


def half(example, prediction):
    return 0.5


def test_what_was_said_about_validation_rows_never_reaches_a_reflection():
    class Telling:
        name = rule = "told"

        def task_score(self, example, *rest):
            return {}

        def verdict(self, example, rollout, *, reveal_gold):
            return Verdict(0.0, f"secret of {example.id}")

    context = search_context(sim_job("gepa", scoring=Telling()))
    adapter, texts = _Adapter(context, random.Random(0)), dict(context.baseline.instructions)
    role = next(iter(texts))
    seen = adapter.evaluate(context.train[:2], texts, capture_traces=True)
    assert "secret of train-0" in str(adapter.make_reflective_dataset(texts, seen, [role]))
    held_out = adapter.evaluate(context.validation, texts, capture_traces=True)
    with pytest.raises(InvalidStep):
        adapter.make_reflective_dataset(texts, held_out, [role])
