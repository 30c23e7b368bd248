"""HotpotQA as a task: rows of a file or the hub, what is shown to programs, what a result may be called."""

import copy
import html
import json
import os
import pickle
import re

import pytest

from data import load_splits, load_task
from data.hotpotqa import HUB
from data.wiki_sources import open_source
from metrics.errors import ConfigurationError

DATA = os.environ.get("HOPTEAM_REAL_DATA", "")
real_data = pytest.mark.skipif(not DATA, reason="HOPTEAM_REAL_DATA is not set")

ROWS = [
    {"_id": "a1", "question": "Is A B?", "answer": "yes", "type": "comparison", "level": "easy", "context": []},
    {"_id": "a2", "question": "Who made A?", "answer": "Ada Bell", "type": "bridge", "level": "hard"},
    {"_id": "a3", "question": "When was A made?", "answer": "1912", "type": "bridge", "level": "hard"},
]  # fmt: skip


@pytest.fixture
def data_file(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS), "utf-8")
    return str(file)


def load(data_file, **options):
    return load_task("hotpotqa", data_file=data_file, **{"split": "all", "wiki": "mini", **options})


# -- rows ------------------------------------------------------------------------------------------


def test_rows_of_a_file_in_the_original_format(data_file):
    task = load(data_file)
    assert [(e.id, e.question, e.gold) for e in task.examples] == [
        ("a1", "Is A B?", "yes"),
        ("a2", "Who made A?", "Ada Bell"),
        ("a3", "When was A made?", "1912"),
    ]
    assert task.examples[0].meta == {"type": "comparison", "level": "easy"}
    assert task.primary == "em" and task.scoring == task.config["scoring"] == "hotpot_evaluate_v1"


def test_a_json_list_reads_like_json_lines(tmp_path, data_file):
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(ROWS), "utf-8")
    assert [e.id for e in load(str(file)).examples] == [e.id for e in load(data_file).examples]


def test_a_parquet_file_as_the_hub_has_it(tmp_path, data_file):
    parquet = pytest.importorskip("pyarrow.parquet")
    from pyarrow import Table

    file = tmp_path / "rows.parquet"
    rows = [{"id": row["_id"], **{k: v for k, v in row.items() if k not in ("_id", "context")}} for row in ROWS]
    parquet.write_table(Table.from_pylist(rows), file)
    assert [e.gold for e in load(str(file)).examples] == [e.gold for e in load(data_file).examples]


def test_limit_offset_and_only(data_file):
    assert [e.id for e in load(data_file, limit=1, offset=1).examples] == ["a2"]
    assert [e.id for e in load(data_file, only=["a3", "a1"]).examples] == ["a1", "a3"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no rows"),
        ("{broken\n", "line 1"),
        ("[1]\n", "row 0"),
        ('{"_id": "x", "question": "q"}\n', "no answer"),
        ('{"question": "q", "answer": "a"}\n', "no id or _id"),
    ],
)
def test_a_file_of_another_form_is_one_clear_line(tmp_path, content, message):
    file = tmp_path / "bad.jsonl"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(str(file))
    assert "\n" not in str(caught.value)


def test_split_ids_that_the_file_lacks_are_counted(data_file):
    with pytest.raises(ConfigurationError, match="lacks 100 of the 100 ids"):
        load(data_file, split="test")
    parts = {name: len(task.examples) for name, task in load_splits_of(data_file).items()}
    assert sum(parts.values()) == 3


def load_splits_of(data_file):
    return load_splits("hotpotqa", data_file=data_file, wiki="mini", split_from_file=True)


def test_options_of_other_tasks_and_missing_files_are_refused(data_file):
    for options in ({"scenario": "forced"}, {"tool_result_budget": 10}, {"wiki": "corpus:/no/such"}):
        with pytest.raises(ConfigurationError):
            load(data_file, **options)
    with pytest.raises(ConfigurationError, match="no file"):
        load("/no/such/file.jsonl")


def test_a_corpus_of_another_form_is_refused_before_any_question(tmp_path, data_file):
    (tmp_path / "pages.jsonl").write_text('{"name": "x"}\n')
    with pytest.raises(ConfigurationError, match=r"pages\.jsonl, line 1"):
        load(data_file, wiki=f"corpus:{tmp_path / 'pages.jsonl'}")


# -- the hub ---------------------------------------------------------------------------------------


def test_the_hub_is_read_from_parquet_at_a_pinned_revision(monkeypatch):
    datasets = pytest.importorskip("datasets")
    asked = {}

    def load_dataset(*args, **kwargs):
        asked.update(kwargs, builder=args)
        return datasets.Dataset.from_list(
            [{"id": "h1", "question": "q", "answer": "a", "type": "bridge", "context": "x"}]
        )

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    task = load_task("hotpotqa", split="all", wiki="mini")
    assert asked["builder"] == ("parquet",) and "trust_remote_code" not in asked
    assert asked["data_files"] == {"rows": HUB.uri} and re.fullmatch(r"[0-9a-f]{40}", HUB.revision)
    assert task.config["revision"] == HUB.revision and task.examples[0].id == "h1"


def test_without_the_hub_one_line_says_which_file_to_give(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def load_dataset(*_, **__):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(ConfigurationError) as caught:
        load_task("hotpotqa", wiki="mini")
    message = str(caught.value)
    assert "\n" not in message and "--data-file validation-00000-of-00001.parquet" in message and HUB.url in message


# -- what programs see -----------------------------------------------------------------------------


def test_an_example_hands_out_question_tools_and_answer_form_only(data_file):
    example = load(data_file).examples[1]
    assert set(example.inputs().keys()) == {"question", "tools", "answer_format"}
    assert [tool.name for tool in example.tools] == ["wikipedia_search", "wikipedia_page"]
    assert "Answer: <short-form>" in example.answer_format.text
    assert example.answer_format.extract("x\nAnswer: **Ada Bell**.") == "Ada Bell"
    assert example.answer_format.vote_key("The Ada-Bell") == "adabell"
    assert "Ada Bell" not in repr(example) and "Ada Bell" not in str(example.toDict())


def test_examples_can_be_pickled_and_copied(data_file):
    example = load(data_file).examples[1]
    for other in (pickle.loads(pickle.dumps(example)), copy.deepcopy(example)):
        assert other.gold == "Ada Bell" and other.inputs().keys() == example.inputs().keys()
        assert other.tools[1](title="Marrow").startswith("Marrow is the capital of Velmora")


# -- scores ----------------------------------------------------------------------------------------


def test_a_row_is_scored_from_its_extracted_answer(data_file):
    task = load(data_file)
    row = task.score(task.examples[1], "long text\nAnswer: Ada Bell.", "Ada Bell", "ignored")
    assert (row["em"], row["f1"], row["predicted_answer"], row["no_answer"]) == (1, 1, "Ada Bell", False)
    row = task.score(task.examples[1], "Thinking.\nAnswer: Ada.", None, "")
    assert row["predicted_answer"] == "Ada" and row["em"] == 0
    for nothing in (("", None), ("", ""), ("Answer:", None)):
        row = task.score(task.examples[0], nothing[0], nothing[1], "yes")
        assert row["no_answer"] is True and row["em"] == 0 and row["predicted_answer"] is None
    assert task.score(task.examples[2], "", "It was 1912, 1913", "")["cover_em"] == 1


def test_the_summary_keeps_missing_answers_apart_and_groups(data_file):
    task = load(data_file)
    answers = ["yes", None, "1913"]
    rows = [task.score(e, "", a, "") | e.meta for e, a in zip(task.examples, answers, strict=True)]
    summary = task.summarize(rows)
    assert (summary["n_extracted"], summary["em_extracted"], summary["f1_extracted"]) == (2, 0.5, 0.5)
    assert summary["by_type"] == {"bridge": {"n": 2, "em": 0, "f1": 0}, "comparison": {"n": 1, "em": 1, "f1": 1}}
    assert summary["by_level"]["hard"]["n"] == 2
    assert task.summarize([])["em_extracted"] is None


def test_a_part_of_the_set_is_not_called_its_score(data_file):
    task = load(data_file)
    row = {"em": 1.0, "f1": 1.0, "no_answer": False, "type": "bridge", "level": "hard"}
    assert (
        task.summarize([row] * 200)["score_label"]
        == "200 of the 7405 questions of hotpotqa: not the score of the full set"
    )
    assert task.summarize([row] * 7405)["score_label"] == "hotpotqa score over the full set of 7405 questions"
    assert "not a published benchmark" in load_task("hotpotqa-sample").summarize([row])["score_label"]


def test_the_configuration_states_what_was_run(data_file):
    config = load(data_file, limit=2).config
    assert {"dataset", "setting", "data_sha256", "split", "n", "ids_hash", "scoring", "wiki"} <= config.keys()
    assert config["n"] == 2 and config["wiki"]["source"] == "mini" and len(config["wiki"]["sha256"]) == 64


# -- the packaged sample ---------------------------------------------------------------------------


def sample_rows():
    from importlib import resources

    text = resources.files("data.samples").joinpath("hotpotqa_sample.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_the_sample_has_fixed_disjoint_splits():
    tasks = load_splits("hotpotqa-sample")
    assert {name: len(task.examples) for name, task in tasks.items()} == {"train": 20, "validation": 10, "test": 10}
    ids = [e.id for task in tasks.values() for e in task.examples]
    assert len(set(ids)) == 40
    assert len(load_task("hotpotqa-sample", split="all").examples) >= 40


def test_the_sample_covers_both_types_and_its_golds_stand_in_its_pages():
    rows = sample_rows()
    source = open_source("mini")
    assert len(source) >= 150 and {row["type"] for row in rows} == {"bridge", "comparison"}
    for row in rows:
        pages = [source.page(title) for title in row["supporting_facts"]["title"]]
        assert all(page.text for page in pages), row["id"]
        if row["answer"] not in ("yes", "no"):
            assert any(row["answer"] in f"{page.title}\n{page.text}" for page in pages), row["id"]


def test_the_sample_search_finds_a_page_to_begin_with():
    source = open_source("mini")
    for row in sample_rows():
        found = {hit.title for hit in source.search(row["question"], 3)}
        assert found & set(row["supporting_facts"]["title"]), row["id"]


def test_some_facts_of_the_sample_stand_behind_the_first_part_of_their_page():
    source = open_source("mini")
    late = [
        row["id"]
        for row in sample_rows()
        for title in row["supporting_facts"]["title"]
        if source.page(title).text.find(row["answer"]) > 4000
    ]
    assert len(late) >= 3


# -- real rows -------------------------------------------------------------------------------------


@real_data
@pytest.mark.real_data
def test_the_first_hundred_rows_are_the_test_split_in_order():
    path = os.path.join(DATA, "hotpotqa", "validation_first100.jsonl")
    task = load_task("hotpotqa", data_file=path, wiki="mini")
    with open(path, encoding="utf-8") as file:
        ids = [json.loads(line)["id"] for line in file]
    assert [e.id for e in task.examples] == ids
    with open(os.path.join(DATA, "hotpotqa", "eval_ids_reference.json"), encoding="utf-8") as file:
        assert sorted(ids) == sorted(json.load(file)["ids"])
    assert sum(e.gold in ("yes", "no") for e in task.examples) == 12
    assert all(task.score(e, f"Answer: {e.gold}", e.gold, "")["em"] == 1 for e in task.examples)


@real_data
@pytest.mark.real_data
def test_the_large_corpus_has_every_gold_page_and_is_ready_within_seconds():
    import time

    path = os.path.join(DATA, "corpus", "wiki_pages.jsonl")
    began = time.process_time()
    source = open_source(f"corpus:{path}")
    assert len(source) == 31_050 and time.process_time() - began < 15
    with open(os.path.join(DATA, "hotpotqa", "validation_first100.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    titles = {title for row in rows for title in row["supporting_facts"]["title"]}
    assert [title for title in titles if not source.page(html.unescape(title)).text] == []
    found = [{hit.title for hit in source.search(row["question"], 10)} for row in rows]
    golds = [{html.unescape(title) for title in row["supporting_facts"]["title"]} for row in rows]
    assert sum(bool(gold & hits) for gold, hits in zip(golds, found, strict=True)) >= 95
