"""What the last screen of a job says beside its numbers."""

from __future__ import annotations

import json

from optimize.phases import run_job, search_context
from optimize.result import result_lines
from optimize.run import main
from programs import build_program
from tests.optimize.jobs import sim_job, sim_splits


def line(result, name):
    return next((text for text in result_lines(result) if text.strip().startswith(name)), None)


def test_a_baseline_that_stays_has_no_interval_of_certainty(tmp_path):
    shown = line(run_job(sim_job("identity"), tmp_path), "test ")
    assert "both sides are the same program" in shown and "points" not in shown


def test_a_search_score_that_differs_from_validation_is_explained(tmp_path):
    result = run_job(sim_job("gepa", budget=150), tmp_path)
    assert result["deployed"] == "incumbent" and "points [" in line(result, "test ")
    assert line(result, "in search") is None, "the same score needs no word"
    other = {**result, "search_score": 0.25}
    assert line(other, "in search") == (
        "   in search 25.0%: on the rows by which it chose, with temperature 0.2, top_p 0.9 and seeds of its own"
    )


def test_the_log_of_mapro_counts_the_rows_of_the_split_that_it_names(tmp_path):
    run_job(sim_job("mapro", budget=90), tmp_path)
    log = [json.loads(text) for text in (tmp_path / "optimization/log.jsonl").read_text().splitlines()]
    trials = [entry for entry in log if entry["event"] == "evaluated"]
    assert trials and all(entry["split"] == "validation" and entry["rows"] <= 9 for entry in trials)
    assert all(entry["beside"]["train"] > 0 for entry in trials), "rows of the same runs that choose nothing"


def test_the_estimate_of_a_dry_run_knows_that_the_embedded_model_is_free(capsys):
    assert main(["--method", "hivemind", "--program", "sequential", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "$0.00 for the task model" in out and "n/a" not in out
    server = ["--model", "openai/some-model", "--api-base", "http://127.0.0.1:9"]
    assert main(["--method", "identity", *server, "--dry-run"]) == 0
    assert "price n/a" in capsys.readouterr().out


def test_hivemind_expects_a_call_for_every_proposal_and_not_for_every_measurement():
    few, more = (estimated("hivemind", budget) for budget in (120, 600))
    assert 5 <= few <= 10 and more > 2 * few


def estimated(method, budget):
    job = sim_job(method, program=build_program("sequential"), splits=sim_splits(20, 10, 10), budget=budget)
    context = search_context(job)
    return job.method.expected_calls(context)
