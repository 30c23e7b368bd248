from __future__ import annotations

import json
import math
from pathlib import Path

import dspy
import pytest

from metrics.errors import ConfigurationError
from metrics.evaluate import evaluate
from metrics.jsonio import dumps, plain, read_lines, write_atomic
from metrics.run_folder import RunFolder, RunFolderError, safe_name
from tests.support.runs import Scripted, WordTask, right, scripted_lm


@pytest.fixture(autouse=True)
def model():
    with dspy.context(lm=scripted_lm()):
        yield


ODD_IDS = ["a/b", "../../etc/passwd", "a b", "a_b", "", ".", "..", "é", "\ud800", "x" * 300, "CON", "a\0b", "a\nb", 7]


def test_any_id_gets_its_own_safe_trace_file(tmp_path):
    names = [safe_name(row_id) for row_id in ODD_IDS]
    assert len(set(names)) == len(ODD_IDS)
    assert all("/" not in name and "\0" not in name and len(name) < 200 and not name.startswith(".") for name in names)
    assert safe_name("5a8b57f25542995d1e6f1371") == "5a8b57f25542995d1e6f1371" and safe_name(12) == "12"
    task = WordTask(ids=ODD_IDS)
    summary = evaluate(Scripted(right), task, folder=tmp_path / "run", config={"settings": {}})
    assert summary["n_scored"] == len(ODD_IDS)
    assert len(list((tmp_path / "run" / "traces").glob("*.json"))) == len(ODD_IDS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"], "nothing outside the folder"


def test_an_edited_row_with_values_of_other_types_is_run_again(tmp_path):
    task, config = WordTask(8), {"settings": {}}
    whole = evaluate(Scripted(right), task, folder=tmp_path, config=config)
    rows = read_lines(tmp_path / "results.jsonl")[0]
    spoiled = [{"error": "oops"}, {"n_lm_calls": "many"}, {"correct": "yes"}, {"usd_billed": [1]}, {"latency_s": {}},
               {"usage_by_role": 3}, {"id": [1]}]  # fmt: skip
    text = b"".join(dumps({**row, **change}) + b"\n" for row, change in zip(rows, [*spoiled, {}], strict=True))
    (tmp_path / "results.jsonl").write_bytes(text)
    program = Scripted(right)
    again = evaluate(program, task, folder=tmp_path, config=config, resume=True)
    assert len(program.runs) == 7 and again["n_scored"] == whole["n_scored"] == 8
    assert {row["id"] for row in read_lines(tmp_path / "results.jsonl")[0]} == {row["id"] for row in rows}


def test_a_full_disk_is_one_clear_line_and_loses_no_row(tmp_path, monkeypatch):
    task = WordTask(6)
    real = RunFolder._append

    def append(self, name, line):
        if name == "results.jsonl" and len(self.rows) == 3:
            raise OSError(28, "No space left on device")
        real(self, name, line)

    monkeypatch.setattr(RunFolder, "_append", append)
    with pytest.raises(RunFolderError) as caught:
        evaluate(Scripted(right), task, folder=tmp_path, threads=1, config={"settings": {}})
    text = str(caught.value)
    assert "No space left on device" in text and "3 finished rows are kept" in text and "\n" not in text
    monkeypatch.undo()
    program = Scripted(right)
    assert evaluate(program, task, folder=tmp_path, config={"settings": {}}, resume=True)["n_scored"] == 6
    assert len(program.runs) == 3


def test_a_device_that_is_really_full(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with RunFolder.open(tmp_path, {"settings": {}}) as folder:
        folder.add({"id": 1})
        folder._files["results.jsonl"] = open("/dev/full", "ab")  # noqa: SIM115
        with pytest.raises(RunFolderError, match="No space left on device; 1 finished rows are kept"):
            folder.add({"id": 2})
    assert [row["id"] for row in read_lines(tmp_path / "results.jsonl")[0]] == [1]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match="cannot write to"):
        evaluate(Scripted(right), WordTask(1), folder=tmp_path / "file" / "run", config={"settings": {}})


def test_resume_without_a_readable_configuration_is_refused(tmp_path):
    evaluate(Scripted(right), WordTask(2), folder=tmp_path, config={"settings": {}})
    (tmp_path / "config.json").write_text('{"settings": {')
    with pytest.raises(RunFolderError, match=r"config\.json is not JSON"):
        evaluate(Scripted(right), WordTask(2), folder=tmp_path, config={"settings": {}}, resume=True)


@pytest.mark.parametrize("content", ["[]", "{}", '{"settings": 1}'])
def test_a_configuration_of_another_form_is_refused(tmp_path, content):
    evaluate(Scripted(right), WordTask(2), folder=tmp_path, config={"settings": {}})
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunFolderError, match="states no settings"):
        evaluate(Scripted(right), WordTask(2), folder=tmp_path, config={"settings": {}}, resume=True)


@pytest.mark.parametrize("content", ["[1]", "{", '{"complete": true}'])
def test_a_damaged_summary_is_made_again_from_the_rows(tmp_path, content):
    evaluate(Scripted(right), WordTask(2), folder=tmp_path, config={"settings": {}})
    (tmp_path / "summary.json").write_text(content)
    program = Scripted(right)
    summary = evaluate(program, WordTask(2), folder=tmp_path, config={"settings": {}}, resume=True)
    assert summary["complete"] and summary["n_scored"] == 2 and not program.runs


def test_overwriting_leaves_nothing_of_the_old_run(tmp_path):
    evaluate(Scripted(right), WordTask(2), folder=tmp_path, config={"settings": {}})
    (tmp_path / "plots").mkdir()
    old = [tmp_path / name for name in ("report.html", "rows.csv", "rows.jsonl", "plots/scores.png", "plots/a.svg")]
    for path in old:
        path.write_text("of the old run")
    (tmp_path / "notes.txt").write_text("the user's own")
    evaluate(Scripted(right), WordTask(1), folder=tmp_path, config={"settings": {}}, overwrite=True)
    assert not [path for path in old if path.exists() and path.read_text() == "of the old run"]
    assert len(list((tmp_path / "traces").iterdir())) <= 1 and (tmp_path / "notes.txt").exists()


def test_resume_of_a_folder_that_is_new_is_a_fresh_run(tmp_path):
    summary = evaluate(Scripted(right), WordTask(2), folder=tmp_path / "new", config={"settings": {}}, resume=True)
    assert summary["complete"]


def test_torn_and_doubled_lines_are_repaired(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"id": 1}\n{"id"\n\0\0\0\n[1]\n{"id": 2}\n{"id": 12')
    rows, torn = read_lines(path)
    assert [row["id"] for row in rows] == [1, 2] and torn == 3
    path.write_bytes(b'{"id": 1}\n{"id": 12}')
    assert read_lines(path) == ([{"id": 1}], 1), "a line without its newline may be cut in the middle of a number"
    assert read_lines(tmp_path / "missing") == ([], 0)

    evaluate(Scripted(right), WordTask(3), folder=tmp_path / "run", config={"settings": {}})
    results = tmp_path / "run" / "results.jsonl"
    first = results.read_bytes().splitlines(keepends=True)[0]
    failed = json.dumps({**json.loads(first), "error": {"kind": "model"}, "correct": None}).encode() + b"\n"
    results.write_bytes(results.read_bytes() + failed + first)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    with RunFolder.open(tmp_path / "run", config, resume=True) as folder:
        assert len(folder.rows) == 3 and not folder.rows["0"]["error"], "a finished row beats a failed attempt"
    assert len(read_lines(results)[0]) == 3


def test_an_atomic_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_atomic(path, b"old")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_any_value_can_be_written():
    class Odd:
        def __str__(self):
            raise RuntimeError("no text")

    cycle: list = []
    cycle.append(cycle)
    for value in (
        "\ud800", math.nan, math.inf, 10**30, 10**5000, {1, 2}, {"a": Odd()}, {(1, 2): 3}, cycle, b"x", Path("a"),
        dspy.Prediction(answer="x"), {"\udfff": 1}, float("-inf"), object,
    ):  # fmt: skip
        text = dumps(value)
        json.loads(text)
        json.dumps(plain(value))
    assert json.loads(dumps({"b": {2, 1}, "n": math.nan})) == {"b": ["1", "2"], "n": None}


def test_version_changes_are_said_but_not_refused(tmp_path, caplog):
    evaluate(Scripted(right), WordTask(2), folder=tmp_path, config={"settings": {}, "environment": {"dspy": "3.4.0"}})
    (tmp_path / "summary.json").unlink()
    evaluate(
        Scripted(right),
        WordTask(2),
        folder=tmp_path,
        resume=True,
        config={"settings": {}, "environment": {"dspy": "3.4.1"}},
    )
    assert "dspy 3.4.0 -> 3.4.1" in caplog.text
