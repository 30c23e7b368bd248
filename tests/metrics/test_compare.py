from __future__ import annotations

import csv
import json
import sys

import dspy
import pytest

from metrics.compare import compare_runs, comparison_lines
from metrics.console import summary_lines
from metrics.errors import ConfigurationError
from metrics.evaluate import evaluate
from metrics.load import export_run, load_run
from tests.support.runs import PlainTeam, Scripted, ScriptedEngine, WordTask, right, scripted_lm


def make(folder, behaviour=right, n=20, task=None, **facts):
    facts = {"program": "scripted", "model": "m/x", **facts}
    config = {"settings": {"program": facts["program"], "model": facts["model"]}, "primary": "correct"}
    with dspy.context(lm=scripted_lm()):
        return evaluate(Scripted(behaviour), task or WordTask(n), folder=folder, facts=facts, config=config)


def right_below(limit):
    return lambda question: right(question) if int(question.split()[-1]) < limit else "wrong"


def test_runs_are_compared_row_by_row(tmp_path):
    make(tmp_path / "a", right_below(8))
    make(tmp_path / "b", right_below(18), program="better")
    make(tmp_path / "c", right_below(7), program="same")
    comparison = compare_runs([tmp_path / name for name in "abc"])
    first, better, same = comparison["runs"]
    assert comparison["n"] == 20 and "versus_first" not in first
    assert (first["score"], better["score"]) == (0.4, 0.9)
    versus = better["versus_first"]
    assert versus["difference"] == pytest.approx(0.5) and 0 < versus["low"] < 0.5 < versus["high"] < 1
    assert (versus["only_first"], versus["only_second"]) == (0, 10)
    assert versus["p_value"] == pytest.approx(2 / 2**10) and versus["p_holm"] == pytest.approx(4 / 2**10)
    assert same["versus_first"]["p_value"] == 1.0
    assert (better["lm_calls_per_question"], better["tool_calls_per_question"]) == (2, 1)
    text = "\n".join(comparison_lines(comparison))
    assert "+50.0 " in text and "points vs first" in text and "better m/x" in text and "20 of 20" in text
    assert compare_runs([tmp_path / name for name in "abc"]) == comparison


def test_runs_over_different_rows_are_refused(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b", n=19)
    make(tmp_path / "c", task=WordTask(20, golds={3: "other"}))
    with pytest.raises(ConfigurationError, match="lacks 1 of the 20 questions"):
        compare_runs([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(ConfigurationError, match="row 3 has another question or gold"):
        compare_runs([tmp_path / "a", tmp_path / "c"])
    with pytest.raises(ConfigurationError, match="is no run folder"):
        compare_runs([tmp_path / "a", tmp_path])
    with pytest.raises(ConfigurationError, match="at least two"):
        compare_runs([tmp_path / "a"])


def test_errors_stay_out_of_the_pairs(tmp_path):
    def behaviour(question):
        if question == "word 0":
            raise RuntimeError("boom")
        return right(question)

    make(tmp_path / "a")
    make(tmp_path / "b", behaviour)
    _, second = compare_runs([tmp_path / "a", tmp_path / "b"])["runs"]
    assert second["n_errors"] == 1 and second["versus_first"]["n"] == 19 and second["versus_first"]["difference"] == 0


def test_rows_that_were_refused_or_failed_are_named(tmp_path):
    def behaviour(question):
        if question in ("word 0", "word 1"):
            raise RuntimeError("boom")
        return right(question)

    refused = WordTask(20)
    refused.refusal = "no code may run"
    make(tmp_path / "a", behaviour)
    make(tmp_path / "b", task=refused)
    comparison = compare_runs([tmp_path / "a", tmp_path / "b"])
    assert [(run["n"], run["n_scored"], run["n_errors"], run["n_refused"]) for run in comparison["runs"]] == [
        (20, 18, 2, 0), (20, 20, 0, 20),
    ]  # fmt: skip
    lines = comparison_lines(comparison)
    assert "warning: 2 rows of [1] failed, not scored (a resume does them again)" in lines
    assert "warning: 20 rows of [2] refused, counted as wrong: no model was asked" in lines
    assert any("18 of 20" in line for line in lines)


def test_runs_of_one_program_and_model_are_told_apart(tmp_path):
    def shape(**given):
        return {"hyperparameters": {"team_size": 4, "communication": "freeform", **given}}

    make(tmp_path / "a", **shape())
    make(tmp_path / "b", **shape(team_size=2))
    make(tmp_path / "c", **shape(communication="structured_soft"), compiled="tuned.json")
    make(tmp_path / "d", program="other", **shape())
    labels = [run["label"] for run in compare_runs([tmp_path / name for name in "abcd"])["runs"]]
    assert labels == [
        "scripted m/x (team size 4, communication freeform, compiled none)",
        "scripted m/x (team size 2, communication freeform, compiled none)",
        "scripted m/x (team size 4, communication structured_soft, compiled tuned.json)",
        "other m/x",
    ]
    make(tmp_path / "e", prompts_hash="0123456789abcdef", **shape())
    make(tmp_path / "f", prompts_hash="fedcba9876543210", **shape())
    labels = [run["label"] for run in compare_runs([tmp_path / name for name in "ef"])["runs"]]
    assert labels == ["scripted m/x (prompts 01234567)", "scripted m/x (prompts fedcba98)"]


def test_a_killed_run_can_be_compared_and_loaded(tmp_path):
    make(tmp_path / "a")
    make(tmp_path / "b")
    (tmp_path / "b" / "summary.json").unlink()
    assert compare_runs([tmp_path / "a", tmp_path / "b"])["runs"][1]["program"] == "scripted"
    with open(tmp_path / "b" / "results.jsonl", "ab") as file:
        file.write(b'{"id": 3, "cor')
    assert len(load_run(tmp_path / "b")) == 20


def test_unknown_prices_are_not_shown_as_zero(tmp_path):
    with dspy.context(lm=scripted_lm(ScriptedEngine())):
        for name in "ab":
            evaluate(PlainTeam(), WordTask(4), folder=tmp_path / name, config={"settings": {}})
    comparison = compare_runs([tmp_path / "a", tmp_path / "b"])
    assert comparison["runs"][0]["usd_billed_per_question"] is None
    assert "$ n/a" in "\n".join(comparison_lines(comparison))


def test_the_embedded_model_is_called_what_it_is(tmp_path):
    summary = make(tmp_path / "a", model="offline", model_label="offline (embedded)", embedded=True)
    make(tmp_path / "b", model="offline", embedded=True)
    assert "not a language model" in "\n".join(summary_lines(summary))
    assert "not a language model" in "\n".join(comparison_lines(compare_runs([tmp_path / "a", tmp_path / "b"])))


def test_what_is_printed_after_a_run(tmp_path):
    def behaviour(question):
        if question == "word 1":
            raise RuntimeError("the agent fell over")
        return "xw0" if question == "word 0" else right(question)

    text = "\n".join(summary_lines(make(tmp_path / "a", behaviour, n=5, decoding={"temperature": 0.2})))
    for part in (
        "words, 5 questions of split test", "ids h5", "setting free", "scoring equal-text", "program scripted",
        "model m/x", "temperature 0.2", "accuracy 100.0% [51.0, 100.0] of 4 scored", "strict 75.0%",
        "a do-nothing answer scores 0.0%",
        "1 error (RuntimeError×1)", "counted as wrong the score is 80.0%", "first: the agent fell over",
        "billed $0.0000", "tool calls",
    ):  # fmt: skip
        assert part in text, part


def test_a_run_loads_as_a_data_frame_or_as_dicts(tmp_path, monkeypatch):
    make(tmp_path / "a", right_below(5), n=6)
    pandas = pytest.importorskip("pandas")
    frame = load_run(tmp_path / "a")
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 6
    assert frame["correct"].mean() == pytest.approx(5 / 6) and list(frame["error_kind"]) == [None] * 6
    monkeypatch.setitem(sys.modules, "pandas", None)
    rows = load_run(tmp_path / "a")
    assert isinstance(rows, list) and rows[5]["predicted_answer"] == "wrong"


def test_rows_are_exported(tmp_path):
    nasty = 'a "quoted", thing\nnext \0 line'
    make(tmp_path / "a", lambda q: nasty, n=3)
    path = export_run(tmp_path / "a", "csv")
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 and rows[0]["predicted_answer"] == nasty.replace("\0", "") and rows[0]["id"] == "0"
    assert json.loads(rows[0]["usage_by_role"]) == {}
    path = export_run(tmp_path / "a", "jsonl")
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == [0, 1, 2]
    with pytest.raises(ConfigurationError, match="unknown export form"):
        export_run(tmp_path / "a", "xls")
