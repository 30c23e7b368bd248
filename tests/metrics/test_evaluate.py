from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import dspy
import pytest

from metrics.errors import ConfigurationError, InfrastructureError
from metrics.evaluate import Limits, evaluate
from metrics.jsonio import read_lines
from metrics.pool import run_pool
from metrics.progress import PlainProgress, RunState, make_progress
from tests.support.processes import interruptible
from tests.support.runs import PlainTeam, Scripted, ScriptedEngine, WordTask, right, scripted_lm


@pytest.fixture(autouse=True)
def model():
    with dspy.context(lm=scripted_lm()):
        yield


def rows_of(folder):
    return read_lines(Path(folder) / "results.jsonl")[0]


def config(**settings):
    return {"settings": {"model": "scripted", **settings}}


def test_a_run_writes_everything_and_sums_it_up(tmp_path):
    task = WordTask(8)
    summary = evaluate(PlainTeam(), task, folder=tmp_path, facts={"program": "plain", "model": "scripted"})
    assert summary["complete"] and summary["stopped_by"] is None
    assert (summary["n"], summary["n_scored"], summary["n_errors"], summary["n_skipped"]) == (8, 8, 0, 0)
    assert summary["accuracy"] == summary["score"] == summary["strict_accuracy"] == 1.0
    assert summary["score_interval"] == pytest.approx([0.675592, 1.0], abs=1e-5)
    assert (summary["lm_calls"], summary["prompt_tokens"], summary["completion_tokens"]) == (8, 80, 24)
    assert summary["usage_by_role"]["solver"]["lm_calls"] == 8
    assert (summary["dataset"], summary["program"], summary["data"]["split"]) == ("words", "plain", "test")
    assert summary["do_nothing"] == {"answer": "I could not find the answer.", "accuracy": 0.0, "strict_accuracy": 0.0}
    assert summary["official_only_share"] == 0 and summary["wall_s"] >= 0
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert [row["id"] for row in rows_of(tmp_path)] == list(range(8)), "row order, whatever finished first"
    predictions = read_lines(tmp_path / "predictions.jsonl")[0]
    assert predictions[3] == {"id": 3, "predicted_answer": "w3", "final_text": "w3"}
    assert json.loads((tmp_path / "traces" / "3.json").read_text())["question"] == "word 3"


def test_each_question_runs_once_however_slow(tmp_path):
    program = Scripted(lambda q: (time.sleep(0.3), right(q))[1])
    summary = evaluate(program, WordTask(4), threads=4)
    assert sorted(program.runs) == [f"word {i}" for i in range(4)]
    assert summary["n_scored"] == 4 and len(summary["rows"]) == 4


def test_a_program_raising_on_every_second_question_is_reported_and_not_averaged_in():
    def behaviour(question):
        if int(question.split()[-1]) % 2:
            raise RuntimeError(f"cannot do {question}")
        return right(question)

    summary = evaluate(Scripted(behaviour), WordTask(6))
    assert (summary["n"], summary["n_scored"], summary["n_errors"]) == (6, 3, 3)
    assert summary["errors"] == {"program:RuntimeError": 3}
    assert summary["accuracy"] == 1.0 and summary["accuracy_errors_as_wrong"] == 0.5
    assert summary["first_error"]["message"] == "cannot do word 1"
    assert [row["correct"] for row in summary["rows"]] == [True, None, True, None, True, None]
    assert summary["complete"], "all rows were run; that some failed is another matter"


def test_refused_rows_count_as_wrong_and_nothing_is_run():
    task = WordTask(5)
    task.refusal = "set TOOLHOP_ALLOW_DATASET_EXEC=1 to run the dataset's code"
    program = Scripted(right)
    summary = evaluate(program, task)
    assert program.runs == []
    assert (summary["n_scored"], summary["n_errors"], summary["n_refused"], summary["accuracy"]) == (5, 0, 5, 0.0)
    assert summary["rows"][0]["error"]["kind"] == "refused"
    assert "TOOLHOP_ALLOW_DATASET_EXEC" in summary["rows"][0]["error"]["message"]
    assert summary["rows"][0]["correct"] is False


def test_rows_with_an_empty_gold_are_skipped_and_counted():
    summary = evaluate(Scripted(right), WordTask(4, golds={1: "", 2: "  ", 3: ["", None]}))
    assert (summary["n"], summary["n_scored"], summary["n_skipped"], summary["n_errors"]) == (4, 1, 3, 0)
    assert summary["rows"][1]["skipped"] == "empty gold" and summary["rows"][1]["correct"] is None


def test_a_gold_of_zero_is_a_gold():
    assert evaluate(Scripted(lambda q: "0"), WordTask(1, golds={0: 0}))["n_skipped"] == 0


def test_a_dead_endpoint_stops_the_run(tmp_path):
    engine = ScriptedEngine(fail={f"word {i}": OSError("refused") for i in range(500)})
    with dspy.context(lm=scripted_lm(engine)):
        summary = evaluate(PlainTeam(), WordTask(120), folder=tmp_path, threads=4)
    assert summary["stopped_by"] == "max_errors" and not summary["complete"]
    assert 13 <= len(engine.requests) <= 13 + 4, "12 are allowed of 120; what was in flight is kept"
    assert summary["n_missing"] == 120 - summary["n_errors"]
    assert summary["score"] is None and summary["n_scored"] == 0


def test_the_error_limit_is_a_share_or_a_count():
    assert Limits(max_errors=0.1).errors_allowed(1000) == 100
    assert Limits(max_errors=0.1).errors_allowed(6) == 10, "a short run is never stopped by its first error"
    assert Limits(max_errors=3).errors_allowed(1000) == 3
    assert Limits(max_errors=0).errors_allowed(1000) == 0
    assert Limits(max_errors=None).errors_allowed(10) == float("inf")


def test_a_money_cap_stops_cleanly_and_keeps_what_was_paid(tmp_path):
    def behaviour(question):
        dspy.settings.usage_meter.record_call(role="s", model="m", prompt_tokens=1, completion_tokens=1, cost=0.3)
        return right(question)

    task = WordTask(40)
    summary = evaluate(Scripted(behaviour), task, folder=tmp_path, threads=2, limits=Limits(max_usd=1.0))
    assert summary["stopped_by"] == "max_usd"
    assert 4 <= summary["n_scored"] <= 5, "the cap plus at most what was in flight"
    assert summary["usd_billed"] == pytest.approx(0.3 * summary["n_scored"])
    again = evaluate(Scripted(behaviour), task, folder=tmp_path, threads=2, limits=Limits(max_usd=1.0), resume=True)
    assert again["n_scored"] == summary["n_scored"], "what was paid before counts"


def test_a_money_cap_with_an_unknown_price_stops_instead_of_spending():
    engine = ScriptedEngine()
    with dspy.context(lm=scripted_lm(engine)):
        summary = evaluate(PlainTeam(), WordTask(50), threads=2, limits=Limits(max_usd=1.0))
    assert summary["stopped_by"] == "max_usd" and summary["usd_billed"] is None and len(engine.requests) <= 4


def test_a_question_that_never_returns_is_given_up_and_the_run_goes_on(tmp_path):
    forever = threading.Event()

    def behaviour(question):
        if question in ("word 1", "word 2"):
            forever.wait()
        return right(question)

    began = time.monotonic()
    summary = evaluate(
        Scripted(behaviour), WordTask(8), folder=tmp_path, threads=2, limits=Limits(question_timeout=0.2, grace=0.2)
    )
    forever.set()
    assert time.monotonic() - began < 5
    assert (summary["n_scored"], summary["n_errors"], summary["n_abandoned"]) == (6, 2, 2)
    row = rows_of(tmp_path)[1]
    assert row["error"]["kind"] == "timeout" and row["correct"] is None and row["latency_s"] >= 0.4


def test_a_question_out_of_time_is_answered_from_what_is_known_and_scored():
    from data import load_task
    from programs import build_program
    from programs.lms import TeamLM
    from programs.offline_lm import OfflineEngine

    class Slow:
        def complete(self, request):
            time.sleep(0.15)
            return OfflineEngine().complete(request)

    with dspy.context(lm=TeamLM("slow/model", engine=Slow(), cache=False)):
        summary = evaluate(
            build_program("single"), load_task("toolhop-sample", limit=2), limits=Limits(question_timeout=0.2)
        )
    assert summary["stopped"] == {"budget_time": 2}
    assert summary["n_scored"] == 2 and summary["n_errors"] == 0, "a time limit is no error of the infrastructure"


def test_what_an_abandoned_question_had_spent_is_in_its_row():
    forever = threading.Event()

    def behaviour(question):
        dspy.settings.usage_meter.record_call(role="s", model="m", prompt_tokens=7, completion_tokens=1, cost=0.5)
        forever.wait()

    summary = evaluate(Scripted(behaviour), WordTask(1), limits=Limits(question_timeout=0.1, grace=0.1))
    forever.set()
    assert summary["usd_billed"] == 0.5 and summary["prompt_tokens"] == 7


def test_equal_seeds_give_equal_rows_at_any_thread_count():
    def replies(question, request):
        return f"w{(request.config.seed or 0) % 7}"

    def rows(threads, seed=0):
        engine = ScriptedEngine(replies=replies)
        with dspy.context(lm=scripted_lm(engine)):
            result = evaluate(PlainTeam(), WordTask(24), threads=threads, seed=seed)["rows"]
        return [{key: value for key, value in row.items() if key != "latency_s"} for row in result]

    assert rows(1) == rows(32)
    assert rows(1) != rows(1, seed=1)


def test_resume_does_what_is_missing_and_nothing_twice(tmp_path):
    task = WordTask(10)

    def flaky(question):
        if question in ("word 3", "word 4"):
            raise InfrastructureError("wikipedia is down", kind="wikipedia")
        return right(question)

    first = evaluate(Scripted(flaky), task, folder=tmp_path, config=config())
    assert first["n_errors"] == 2
    lines = (tmp_path / "results.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "results.jsonl").write_bytes(b"".join(lines[:7]) + lines[7][: len(lines[7]) // 2])
    program = Scripted(right)
    second = evaluate(program, task, folder=tmp_path, config=config(), resume=True)
    assert sorted(program.runs) == ["word 3", "word 4", "word 7", "word 8", "word 9"]
    assert second["complete"] and (second["n_scored"], second["n_errors"]) == (10, 0)
    assert [row["id"] for row in rows_of(tmp_path)] == list(range(10))
    assert [row["attempts"] for row in rows_of(tmp_path)] == [1, 1, 1, 2, 2, 1, 1, 1, 1, 1]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.is_file() and path.name != ".lock"}
    third = evaluate(Scripted(right), task, folder=tmp_path, config=config(), resume=True)
    assert third == json.loads((tmp_path / "summary.json").read_text())
    assert before == {path: path.stat().st_mtime_ns for path in before}, "a third run does nothing"


def test_changed_settings_are_refused_with_both_values(tmp_path):
    evaluate(Scripted(right), WordTask(3), folder=tmp_path, config=config(seed=0, data={"split": "test"}))
    with pytest.raises(ConfigurationError) as caught:
        evaluate(
            Scripted(right),
            WordTask(3),
            folder=tmp_path,
            resume=True,
            config={"settings": {"model": "other", "seed": 0, "data": {"split": "train"}}},
        )
    text = str(caught.value)
    assert "model: 'scripted' (saved) / 'other' (now)" in text
    assert "data.split: 'test' (saved) / 'train' (now)" in text and "seed" not in text


def test_a_folder_with_rows_needs_a_word(tmp_path):
    evaluate(Scripted(right), WordTask(3), folder=tmp_path, config=config())
    with pytest.raises(ConfigurationError, match="--resume to go on or --overwrite"):
        evaluate(Scripted(right), WordTask(3), folder=tmp_path, config=config())
    summary = evaluate(Scripted(lambda q: "no"), WordTask(2), folder=tmp_path, config=config(), overwrite=True)
    assert summary["accuracy"] == 0 and len(rows_of(tmp_path)) == 2
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == ["0.json", "1.json"]


def test_user_mistakes_are_configuration_errors():
    with pytest.raises(ConfigurationError, match="nothing to run"):
        evaluate(Scripted(right), WordTask(0))
    with pytest.raises(ConfigurationError, match=r"more than once, e\.g\. a"):
        evaluate(Scripted(right), WordTask(ids=["a", "b", "a"]))
    with pytest.raises(ConfigurationError, match="--threads"):
        evaluate(Scripted(right), WordTask(1), threads=0)
    with dspy.context(lm=None), pytest.raises(ConfigurationError, match="no model"):
        evaluate(Scripted(right), WordTask(1))


def test_a_program_that_exits_costs_its_row_only():
    def behaviour(question):
        if question == "word 1":
            sys.exit(3)
        return right(question)

    summary = evaluate(Scripted(behaviour), WordTask(3))
    assert summary["errors"] == {"program:SystemExit": 1} and summary["n_scored"] == 2


RUN = """
import sys, time, dspy
from metrics.evaluate import evaluate
from metrics.progress import PlainProgress
from tests.support.runs import Scripted, WordTask, right, scripted_lm
def slow(question):
    time.sleep(0.05 if int(question.split()[-1]) < 50 else 0.5)  # there is time to be interrupted, also under load
    return right(question)
dspy.configure(lm=scripted_lm())
summary = evaluate(Scripted(slow), WordTask(100), folder=sys.argv[1], threads=2,
                   config={"settings": {"n": 100}}, resume=True, progress=PlainProgress(verbose=True))
print(summary["stopped_by"], summary["n_scored"])
"""


def start(folder):
    before = len(read_lines(folder / "results.jsonl")[0])
    with interruptible():
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    deadline = time.monotonic() + 60
    while len(read_lines(folder / "results.jsonl")[0]) < before + 7 and time.monotonic() < deadline:
        time.sleep(0.02)
    return process


def test_kill_and_interrupt_keep_finished_rows_and_a_second_writer_is_refused(tmp_path):
    process = start(tmp_path)
    with pytest.raises(ConfigurationError, match="another process is writing"):
        evaluate(Scripted(right), WordTask(100), folder=tmp_path, config={"settings": {"n": 100}}, resume=True)
    process.kill()
    process.wait()
    killed = len(rows_of(tmp_path))
    assert 7 <= killed < 100
    with open(tmp_path / "results.jsonl", "ab") as file:
        file.write(b'{"id": 99, "correct": tru')

    process = start(tmp_path)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert out.startswith("interrupted ")
    interrupted = len(rows_of(tmp_path))
    assert killed <= interrupted < 100
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert not summary["complete"] and summary["n_scored"] == interrupted

    program = Scripted(right)
    final = evaluate(program, WordTask(100), folder=tmp_path, config={"settings": {"n": 100}}, resume=True)
    assert len(program.runs) == 100 - interrupted
    assert final["complete"] and len({row["id"] for row in rows_of(tmp_path)}) == 100


def test_the_pool_stops_and_reports_what_is_left():
    done = []
    report = run_pool(
        range(20),
        lambda i: i * i,
        threads=2,
        on_result=lambda item, result, error: done.append((item, result)),
        stop=lambda: len(done) >= 5,
    )
    assert len(done) + len(report.not_started) == 20 and 5 <= len(done) <= 7
    assert all(result == item * item for item, result in done)
    assert run_pool([], lambda i: i, threads=3, on_result=lambda *a: None).not_started == []


def test_progress_lines_show_what_matters(capsys):
    state = RunState(total=10)
    progress = PlainProgress(verbose=True)
    progress.start(state)
    good = {"id": 1, "correct": True, "error": None, "n_lm_calls": 2, "prompt_tokens": 900, "completion_tokens": 100,
            "usd_billed": 0.25, "predicted_answer": "x", "latency_s": 1.0}  # fmt: skip
    state.add(good, "correct")
    progress.update(state, good)
    bad = {"id": 2, "correct": None, "error": {"kind": "model", "type": "E", "message": "down\nnow"},
           "usd_billed": None}  # fmt: skip
    state.add(bad, "correct")
    progress.update(state, bad)
    progress.close(state)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "1 right 'x' (2 calls, 1.0 s)" in captured.err and "2 model: down now" in captured.err
    assert "2/10 · score 100.0% [20.7, 100.0] · 1 error · 1,000 tokens · $ n/a" in captured.err
    assert "left" in captured.err


def test_the_live_line_works_on_a_terminal():
    import io

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    progress = make_progress(stream=stream)
    evaluate(Scripted(right), WordTask(5), progress=progress)
    assert "5/5" in stream.getvalue() and "score 100.0%" in stream.getvalue()
    assert "no language model" not in stream.getvalue()
    evaluate(Scripted(right), WordTask(5), progress=make_progress(stream=stream), facts={"embedded": True})
    assert "no language model" in stream.getvalue(), "a running score of the embedded engine says so"
    assert make_progress(quiet=True, stream=stream).__class__.__name__ == "SilentProgress"
