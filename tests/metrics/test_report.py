"""`report.html`: made from saved files alone, whatever is in them; it never costs a result."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
import zlib

import dspy
import pytest

import eval as command
from metrics.errors import ConfigurationError
from metrics.evaluate import evaluate
from metrics.progress import SilentProgress
from metrics.report import try_report, write_comparison, write_report
from metrics.report.command import main
from metrics.report.page import SCRIPTS, script_json
from metrics.report.run import run_page
from tests.support.report_folders import CONFIG, HOSTILE, failed, row, trace, write_run
from tests.support.runs import Scripted, WordTask, right, scripted_lm


def run_words(behaviour, folder, n=3, **options):
    with dspy.context(lm=scripted_lm()):
        return evaluate(Scripted(behaviour), WordTask(n), folder=folder, **options)


def data_of(path):
    """What the page of a report is given."""
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def trace_of(path, index):
    """The trace of row `index`, unpacked as the page does it."""
    packed = re.search(rf'id="trace-{index}">([^<]*)<', path.read_text(encoding="utf-8"))[1]
    return json.loads(zlib.decompress(base64.b64decode(packed)))


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    for dataset in ("toolhop-sample", "hotpotqa-sample"):
        arguments = ["--program", "centralized", "--dataset", dataset, "--limit", "4", "--quiet"]
        command.main([*arguments, "--out", str(folder / dataset)])
    return folder


def test_a_run_leaves_a_report_that_shows_what_its_summary_says(sample):
    folder = sample / "toolhop-sample"
    summary = json.loads((folder / "summary.json").read_text())
    data = data_of(folder / "report.html")
    head = data["headline"]
    assert (head["score"], head["interval"]) == (summary["score"], summary["score_interval"])
    assert head["nothing"] == summary["do_nothing"]["accuracy"] and head["n_scored"] == 4
    assert [b["label"] for b in head["beside"]] == ["strict"]
    assert data["credited"] == summary["credited_by"]
    measured = dict(data["measured"])
    assert measured["dataset"] == "toolhop-sample" and measured["tool calling"] == "text"
    assert measured["scoring rule"] == "mas-promptbench" and "seccomp" in measured["sandbox"]
    assert measured["ids"] == summary["data"]["ids_hash"] and "temperature 0.0" in measured["decoding"]
    assert "embedded" in data["embedded"] and "not a language model" in data["model"]
    roles = {part["role"]: part for part in data["usage"]["roles"]}
    assert set(roles) == set(summary["usage_by_role"]) and all(part["seconds"] is not None for part in roles.values())
    saved = json.loads((folder / "traces" / f"{data['rows'][0]['id']}.json").read_text())
    assert trace_of(folder / "report.html", 0) == saved


def test_hotpotqa_has_its_own_scores_and_groups(sample):
    data = data_of(sample / "hotpotqa-sample" / "report.html")
    assert data["headline"]["name"] == "exact match"
    assert {"F1", "cover EM"} <= {part["label"] for part in data["headline"]["beside"]}
    assert [group["label"] for group in data["groups"]] == ["level"] or len(data["groups"]) == 2
    assert dict(data["measured"])["Wikipedia"].startswith("source mini") and not data["credited"]


def test_a_report_made_again_is_the_same(sample):
    before = (sample / "toolhop-sample" / "report.html").read_bytes()
    assert write_report(sample / "toolhop-sample").read_bytes() == before


def test_nothing_in_a_report_asks_the_network(sample):
    text = (sample / "toolhop-sample" / "report.html").read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "connect-src" not in policy
    page = re.sub(r'<script type="(application/json|text/plain)".*?</script>', "", text, flags=re.S)
    assert set(re.findall(r"https?://[^\s\"'`]+", page)) == {"http://www.w3.org/2000/svg"}
    risky = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|fetch\(|XMLHttp|WebSocket|import\("
    assert not re.search(risky, page)
    assert not re.search(r"<(?:link|img|iframe|script|object)[^>]+(?:src|href)=(?!\"data:,\")", page)


def test_a_killed_run_has_a_report(tmp_path):
    rows = [row(1), row(2, correct=False, credited_by="none", predicted_answer="Rome", hops=3), failed(3)]
    folder = write_run(tmp_path / "run", rows, {"1": trace(1), "2": '{"calls": [{"age'})
    (folder / "results.jsonl").open("a").write('{"id": 4, "question": "tor')
    data = data_of(write_report(folder))
    assert data["headline"]["score"] == 0.5 and data["headline"]["interval"][0] > 0
    assert data["headline"]["nothing"] == 0.0  # worked out from the golds: no summary says it
    assert data["stopped"] == {"by": "killed", "missing": 0, "n": 3}
    assert data["outcomes"] == {"right": 1, "wrong": 1, "error": 1, "refused": 0, "skipped": 0, "missing": 0}
    assert [e["kind"] for e in data["errors"]] == ["model"] and data["errors"][0]["message"] == "no route to host"
    assert trace_of(folder / "report.html", 0)["calls"] and data["usage"]["roles"][0]["seconds"] == 1.0


def test_a_summary_of_an_earlier_stage_is_not_believed(tmp_path):
    stale = {"n": 3, "n_missing": 2, "score": 0.0, "primary": "correct", "complete": False}
    folder = write_run(tmp_path / "run", [row(1), row(2), row(3)], summary=stale)
    assert data_of(write_report(folder))["headline"]["score"] == 1.0


@pytest.mark.parametrize(
    "broken",
    [
        {"config": "not an object"},
        {"config": {}, "summary": []},
        {"summary": {"n": 1, "n_missing": 0, "usage_by_role": 3, "data": [], "by_hops": {"2": None}, "notes": "x"}},
    ],
)
def test_damaged_documents_leave_a_report_of_the_rows(tmp_path, broken):
    odd = {"id": {"a": [1]}, "question": None, "error": {"kind": "model"}, "hops": [2], "usage_by_role": None}
    folder = write_run(tmp_path / "run", [odd], **broken)
    assert len(data_of(write_report(folder))["rows"]) == 1


def test_no_text_of_a_row_can_leave_its_place(tmp_path):
    rows = [row(HOSTILE, question=HOSTILE, gold_answer=HOSTILE, predicted_answer=HOSTILE, type=HOSTILE)]
    config = {**CONFIG, "settings": {**CONFIG["settings"], "program": HOSTILE, "dataset": HOSTILE}}
    path = write_report(write_run(tmp_path / "run", rows, config=config))
    text = path.read_text(encoding="utf-8")
    assert text.count("<script") == text.count("</script>") == 2 and "\0" not in text and "<img" not in text
    assert data_of(path)["rows"][0]["question"].startswith("<script>window.hacked = 1</script></script>")


def test_json_in_a_script_element_is_json_still():
    value = {"</script>": ["<!--", "&lt;", "\u2028", "\0", float("nan")]}
    text = script_json(value)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"</script>": ["<!--", "&lt;", "\u2028", "\0", None]}


def test_a_thousand_questions_are_made_in_five_seconds(tmp_path):
    command.main(["--program", "single", "--limit", "8", "--quiet", "--out", str(tmp_path / "seed")])
    saved = [json.loads(line) for line in (tmp_path / "seed" / "results.jsonl").read_text().splitlines()]
    traces = {each["id"]: (tmp_path / "seed" / "traces" / f"{each['id']}.json").read_text() for each in saved}
    rows = [{**saved[i % len(saved)], "id": f"q{i}"} for i in range(1000)]
    folder = write_run(tmp_path / "run", rows, {f"q{i}": traces[saved[i % len(saved)]["id"]] for i in range(1000)})
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        path = write_report(folder)
        taken.append(time.perf_counter() - began)
        if taken[-1] < 5:
            break
    assert min(taken) < 5, taken
    assert len(data_of(path)["rows"]) == 1000 and 'id="trace-999"' in path.read_text()


def test_what_does_not_fit_is_left_out_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr("metrics.report.traces.LIMIT", 1300)
    rows = [row(1), row(2, correct=False), row(3), failed(4)]
    page = run_page(write_run(tmp_path / "run", rows, {str(i): trace(i) for i in (1, 2, 3, 4)}))
    assert set(page.blobs) == {"trace-1", "trace-3"}  # failed and wrong ones first
    assert page.data["traces_left_out"] == 2


def test_a_row_without_a_trace_keeps_its_final_message(tmp_path):
    folder = write_run(tmp_path / "run", [row(1)])
    (folder / "predictions.jsonl").write_text(json.dumps({"id": 1, "final_text": "It is Oslo."}) + "\n")
    assert trace_of(write_report(folder), 0) == {"final_text": "It is Oslo."}


def test_a_report_that_fails_costs_no_result(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("metrics.report.page.build_page", lambda page: 1 / 0)
    with caplog.at_level(logging.WARNING):
        summary = run_words(right, tmp_path / "run")
    assert summary["complete"] and (tmp_path / "run" / "summary.json").exists()
    assert "no report was written (ZeroDivisionError" in caplog.text
    assert try_report(tmp_path / "nowhere") is None


def test_an_interrupted_run_leaves_a_report(tmp_path):
    class Interrupted(SilentProgress):
        def update(self, state, row):
            if state.done == 2:
                raise KeyboardInterrupt

    summary = run_words(right, tmp_path / "run", 5, threads=1, progress=Interrupted())
    assert summary["stopped_by"] == "interrupted"
    data = data_of(tmp_path / "run" / "report.html")
    assert data["stopped"]["by"] == "interrupted" and data["outcomes"]["missing"] == summary["n_missing"] == 3


def test_overwriting_a_run_replaces_its_report(tmp_path, monkeypatch):
    run_words(right, tmp_path / "run")
    run_words(lambda question: "no idea", tmp_path / "run", overwrite=True)
    assert data_of(tmp_path / "run" / "report.html")["headline"]["score"] == 0.0
    monkeypatch.setattr("metrics.report.try_report", lambda folder: None)
    run_words(right, tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run" / "report.html").exists()  # rather none than one of other rows


def test_the_command_writes_reports_of_all_that_is_below(tmp_path, capsys):
    write_run(tmp_path / "a" / "one", [row(1)])
    write_run(tmp_path / "a" / "two", [row(1, correct=False)])
    assert main([str(tmp_path / "a"), "--out", str(tmp_path / "both.html")]) == 0
    paths = capsys.readouterr().out.split()
    assert paths == [str(tmp_path / name) for name in ("a/one/report.html", "a/two/report.html", "both.html")]
    data = data_of(tmp_path / "both.html")
    assert [entry["score"] for entry in data["entries"]] == [1.0, 0.0] and data["kind"] == "runs"
    assert data["versus"][1]["difference"] == -1.0


def test_runs_over_different_questions_are_shown_without_a_test(tmp_path):
    folders = [write_run(tmp_path / "a", [row(1)]), write_run(tmp_path / "b", [row(2)])]
    data = data_of(write_comparison(folders, tmp_path / "both.html"))
    assert data["versus"] == [] and "different questions" in data["versus_note"]


def test_the_command_says_mistakes_in_one_line(tmp_path, capsys):
    for folder, what in ((tmp_path / "none", "no such folder"), (tmp_path, "neither a run")):
        assert main([str(folder)]) == 2
        out, err = capsys.readouterr()
        assert not out and err.startswith("error: ") and what in err and err.count("\n") == 1
    with pytest.raises(ConfigurationError, match="neither a run"):
        write_report(tmp_path)


def test_every_asset_is_used_and_installed():
    import tomllib
    from pathlib import Path

    assets = Path(write_report.__code__.co_filename).with_name("assets")
    used = {name for names in SCRIPTS.values() for name in names} | {"report.css"}
    assert used == {path.name for path in assets.iterdir()}
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "metrics.report" in project["packages"] and project["package-data"]["metrics.report"] == ["assets/*"]
