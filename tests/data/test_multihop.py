"""2WikiMultiHopQA, MuSiQue and Bamboogle: their formats, and each metric as a maximum over the aliases."""

import json
import os

import pytest

from data import load_task
from data.multihop import SETS
from metrics.errors import ConfigurationError
from metrics.multihop import score, score_musique

DATA = os.environ.get("HOPTEAM_REAL_DATA", "")
FILES = {
    "2wikimultihopqa": ("2wikimultihopqa/2wikimultihopqa_100.jsonl", 100),
    "musique": ("musique/musique_120.jsonl", 120),
    "bamboogle": ("bamboogle/bamboogle_75.jsonl", 75),
}


def write(tmp_path, *rows):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(file)


def load(name, file, **options):
    return load_task(name, data_file=file, wiki="mini", **options)


def test_2wiki_rows(tmp_path):
    row = {"_id": "w1", "type": "inference", "question": "q", "answer": "Ada Bell", "context": [], "evidences": []}
    task = load("2wikimultihopqa", write(tmp_path, row))
    assert task.examples[0].gold == "Ada Bell" and task.examples[0].meta == {"type": "inference"}
    assert task.config["split_origin"] == "whole file"


def test_musique_rows_have_aliases_and_hops(tmp_path):
    row = {
        "id": "3hop1__1_2_3",
        "question": "q",
        "answer": "Nightwing",
        "answer_aliases": ["Dick Grayson"],
        "paragraphs": [],
    }
    task = load("musique", write(tmp_path, row))
    example = task.examples[0]
    assert example.gold == "Nightwing" and example.meta == {"hops": "3"}
    assert task.score(example, "", "dick grayson", "")["em"] == 1
    assert task.score(example, "Answer: Robin", None, "")["em"] == 0
    assert "Grayson" not in repr(example) and "Grayson" not in repr(task)
    assert task.summarize([task.score(example, "", "Nightwing", "") | example.meta])["by_hops"] == {
        "3": {"n": 1, "em": 1, "f1": 1}
    }


def test_bamboogle_rows_with_one_or_several_golden_answers(tmp_path):
    rows = [
        {"id": "test_1", "question": "q", "answer": "2012", "golden_answers": ["2012"]},
        {"id": "test_2", "question": "q", "golden_answers": ["11 May 1800", "May 11, 1800"]},
    ]
    task = load("bamboogle", write(tmp_path, *rows))
    assert [e.gold for e in task.examples] == ["2012", "11 May 1800"]
    assert task.score(task.examples[1], "", "May 11, 1800", "")["em"] == 1


def test_a_folder_is_its_jsonl_files_one_after_the_other(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    with pytest.raises(ConfigurationError, match=r"holds no \.jsonl file"):
        load("bamboogle", str(folder))
    for name, row_id in (("b.jsonl", "2"), ("a.jsonl", "1"), ("notes.txt", "3")):
        (folder / name).write_text(json.dumps({"id": row_id, "question": "q", "answer": "x"}) + "\n", "utf-8")
    task = load("bamboogle", str(folder))
    assert [example.id for example in task.examples] == ["1", "2"]
    both = tmp_path / "both.jsonl"
    both.write_bytes((folder / "a.jsonl").read_bytes() + (folder / "b.jsonl").read_bytes())
    assert task.config["data_sha256"] == load("bamboogle", str(both)).config["data_sha256"]
    (folder / "c.jsonl").write_text((folder / "a.jsonl").read_text("utf-8"), "utf-8")
    with pytest.raises(ConfigurationError, match="1 ids more than once"):
        load("bamboogle", str(folder))


def test_the_scenario_direct_has_no_tools_and_opens_no_source(tmp_path):
    file = write(tmp_path, {"id": "x", "question": "q", "answer": "a"})
    offered = load("musique", file)
    assert len(offered.examples[0].tools) == 2 and offered.config["scenario"] == "free"
    assert load("musique", file, scenario="mandatory").config["scenario"] == "mandatory"
    direct = load("musique", file, scenario="direct")
    assert direct.examples[0].tools == [] and direct.config["wiki"] is None
    assert direct.config["setting"] == "direct, no search"


@pytest.mark.parametrize("row", [{"id": "x", "question": "q"}, {"id": "x", "question": "q", "golden_answers": "text"}])
def test_rows_without_an_answer_are_refused(tmp_path, row):
    with pytest.raises(ConfigurationError):
        load("bamboogle", write(tmp_path, row))


def test_each_metric_is_a_maximum_of_its_own():
    result = score(["New York City", "the big old apple city"], "Apple New York City is big")
    assert result["em"] == 0 and result["cover_em"] == 1
    assert result["f1"] == pytest.approx(2 * 3 / 9) and result["recall"] == 1
    assert result["precision"] == pytest.approx(3 / 6)


def test_musique_counts_two_empty_texts_as_equal():
    assert score_musique("The The", "!!!")["f1"] == 1 and score("The The", "!!!")["f1"] == 0
    assert score_musique("Paris", "the")["f1"] == 0
    assert score_musique(["Paris", "a"], "the")["f1"] == 1
    assert score_musique("The The", None)["f1"] == 0
    assert score_musique("Paris, France", "Paris")["f1"] == pytest.approx(2 / 3)


def test_the_hub_files_are_pinned():
    assert all(len(entry.hub.revision) == 40 for entry in SETS.values())


@pytest.mark.real_data
@pytest.mark.skipif(not DATA, reason="HOPTEAM_REAL_DATA is not set")
@pytest.mark.parametrize("name", FILES)
def test_real_files_load_and_their_own_answers_are_right(name):
    path, n = FILES[name]
    task = load(name, os.path.join(DATA, path))
    assert len(task.examples) == n
    for example in task.examples:
        for accepted in task.accepted[example.id]:
            row = task.score(example, f"Answer: {accepted}", None, "")
            assert row["cover_em"] == 1 and row["f1"] > 0.6
        assert task.score(example, "", example.gold, "")["em"] == 1
