"""`eval.py --metric`: a program optimized for a metric of the user's own is measured by the same metric again."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

import eval as command
from optimize import run as optimize_run

METRIC = '''
import dspy


def short(example, prediction, trace=None):
    """A share, from a field that only the whole prediction has."""
    assert example.answer and prediction.trajectory
    return dspy.Prediction(score=1 / (1 + len(prediction.answer)), feedback="be brief")


def broken(example, prediction):
    return prediction.nothing


def odd(example):
    return 1
'''


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_metrics.py").write_text(METRIC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(main, *arguments):
        status = main(list(arguments))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    yield run
    sys.modules.pop("my_metrics", None)


def test_the_same_rows_give_the_score_of_the_job_again(call, tmp_path):
    status, out, err = call(optimize_run.main, "--method", "identity", "--program", "single", "--allow-any-cell",
                            "--out", "job", "--metric", "my_metrics:short")  # fmt: skip
    assert status == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith("same rows")]
    status, _, err = call(command.main, *shlex.split(line[line.index("--load") :]), "--out", "run")
    assert status == 0, err
    result = json.loads((tmp_path / "job/result.json").read_text())
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert 0 < summary["score"] < 1 and summary["scoring"] == "my_metrics:short"
    assert summary["score"] == summary["accuracy"] == pytest.approx(result["test"]["deployed"]["score"], abs=1e-6)
    row = json.loads((tmp_path / "run/results.jsonl").read_text().splitlines()[0])
    assert row["correct"] == 1 / (1 + len(row["predicted_answer"])) and "strict_correct" not in row


def test_what_is_shown_names_the_metric(call):
    status, out, err = call(command.main, "--metric", "my_metrics:short", "--limit", "2")
    assert status == 0 and "scoring my_metrics:short" in out and "do-nothing" not in out, err


def test_a_metric_that_fails_is_an_error_of_its_row_and_no_score(call, tmp_path):
    status, out, _ = call(command.main, "--metric", "my_metrics:broken", "--limit", "2", "--out", "run")
    assert status == 1 and "no attribute 'nothing'" in out
    row = json.loads((tmp_path / "run/results.jsonl").read_text().splitlines()[0])
    assert row["correct"] is None and row["error"]["kind"] == "program" and row["predicted_answer"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--metric", "official"), "--metric takes package.module:NAME"),
        (("--metric", "my_metrics:none"), "my_metrics"),
        (("--metric", "my_metrics:odd"), "must accept (example, prediction)"),
        (("--metric", "my_metrics:short", "--suite", "agent-as-tool"), "drop --metric"),
    ],
)
def test_a_mistake_is_one_line(call, flags, said):
    status, out, err = call(command.main, *flags)
    assert (status, out) == (2, "") and said in err and len(err.splitlines()) == 1
