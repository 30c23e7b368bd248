"""`--smoke-dataset` says what is wrong with a file, and nothing of the file is run."""

import json

import pytest

from data.toolhop_smoke import smoke_dataset, structure
from metrics.errors import ConfigurationError


def test_zero_rows(tmp_path):
    path = tmp_path / "empty.json"
    path.write_text("[]")
    report = smoke_dataset(data_file=str(path))
    assert report["rows"] == 0 and report["tools_per_row"]["mean"] is None
    json.dumps(report)


def test_what_is_wrong_is_counted_with_examples():
    good = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "int"}}}}
    moved = "def h(): 1"
    rows = [
        {"id": 1, "question": "q", "answer": "12", "tools": {"a": good, "b": good}, "functions": ["def f(a): 1"] * 2},
        {"id": 1, "answer": "1.5", "tools": {"a": {"name": "g", "parameters": {}}}, "functions": ["def g(:", "x = 1"]},
        {"id": 2, "answer": "", "tools": ["no schema"], "functions": [7]},
        {"id": 3, "answer": "[1]", "tools": {"a": good | {"name": "h"}, "b": good}, "functions": ["def f(): 1", moved]},
        {},
    ]  # fmt: skip
    report = structure(rows)
    assert report["rows"] == 5 and report["unique_ids"] == 4 and report["duplicate_ids"] == 1
    assert report["missing_fields"]["question"] == 4 and report["missing_fields"]["id"] == 1
    assert report["tools_per_row"] == {"min": 0, "max": 2, "mean": 1.2, "median": 1}
    assert report["gold_types"] == {"empty": 2, "float": 1, "int": 1, "list": 1}
    assert report["unparsable_sources"] == 2 and report["unparsable_sources_examples"][0]["id"] == 1
    assert report["schema_errors"] == 2 and report["duplicate_names"] == 1 and report["repaired_types"] >= 4
    problems = [item["error"] for item in report["name_mismatches_examples"]]
    assert "defined at another position" in problems and "1 schemas but 2 functions" in problems
    json.dumps(report)


def test_the_first_five_rows_unless_told_otherwise():
    assert smoke_dataset("toolhop-sample")["rows"] == 5
    assert smoke_dataset("toolhop-sample", offset=47, limit=0)["rows"] == 1
    assert smoke_dataset("toolhop-sample", only=[3, "4"])["rows"] == 2


def test_sources_are_not_run(tmp_path):
    mark = tmp_path / "mark"
    source = f"open({str(mark)!r}, 'w')\ndef f(): 1"
    structure([{"id": 1, "tools": {"a": {"name": "f"}}, "functions": [source]}])
    assert not mark.exists()


def test_an_unreadable_file_is_one_line(tmp_path):
    with pytest.raises(ConfigurationError, match="there is no file"):
        smoke_dataset(data_file=str(tmp_path / "none.json"))
