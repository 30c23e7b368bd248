"""Real rows of the four multi-hop sets through every program, over an offline Wikipedia with the embedded model.

All rows of all sets take some minutes: docs/multihop.md has the command.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import eval as command
from programs.registry import PROGRAMS

REAL = os.environ.get("HOPTEAM_REAL_DATA", "")
SETS = {
    "hotpotqa": "hotpotqa/validation_first100.jsonl",
    "2wikimultihopqa": "2wikimultihopqa/2wikimultihopqa_100.jsonl",
    "musique": "musique/musique_120.jsonl",
    "bamboogle": "bamboogle/bamboogle_75.jsonl",
}
SCORES = ("em", "f1", "cover_em")


@pytest.mark.real_data
@pytest.mark.skipif(not REAL, reason="HOPTEAM_REAL_DATA names no folder with real rows")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dataset", SETS)
def test_a_slice_of_every_set_is_scored(dataset, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["--program", name, "--dataset", dataset, "--data-file", f"{REAL}/{SETS[dataset]}", "--limit", "3"]
    arguments += ["--wiki", f"corpus:{REAL}/corpus/wiki_pages.jsonl", "--out", "run", "--quiet"]
    assert command.main(arguments) == 0
    summary = json.loads(Path("run/summary.json").read_text())
    rows = [json.loads(line) for line in Path("run/results.jsonl").read_text().splitlines()]
    assert summary["n_scored"] == len(rows) == 3 and summary["n_errors"] == 0
    assert summary["embedded"] and "not the score of the full set" in summary["score_label"]
    assert all(0 <= row[score] <= 1 for row in rows for score in SCORES)
    assert all(row["em"] <= row["cover_em"] for row in rows)
    searches = 0 if name == "direct" else 1
    assert all(row["n_tool_calls"] >= searches for row in rows)
