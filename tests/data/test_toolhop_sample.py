"""The packaged sample: every question is solvable by calls to its own tools, in the sandbox."""

import json
from pathlib import Path

import pytest

from data import load_splits, load_task
from data.toolhop_smoke import smoke_dataset

TRACES = Path(__file__).parent / "toolhop_sample_traces.jsonl"


@pytest.fixture(scope="module")
def task():
    return load_task("toolhop-sample", split="all")


def test_the_sample_has_the_original_form_and_its_quirks():
    report = smoke_dataset("toolhop-sample", limit=0)
    assert report["rows"] == report["unique_ids"] >= 40
    assert not any(report["missing_fields"].values())
    assert (report["tools_per_row"]["min"], report["tools_per_row"]["max"]) == (3, 6)
    assert report["unparsable_sources"] == report["schema_errors"] == report["name_mismatches"] == 0
    assert report["duplicate_names"] >= 3 and report["repaired_types"] >= 3
    assert {"int", "float", "bool", "text"} <= set(report["gold_types"])


def test_golds_are_of_all_kinds(task):
    golds = [example.gold for example in task.examples]
    assert any(len(gold) == 1 and gold.isalpha() for gold in golds)
    assert any(gold.count("-") == 2 for gold in golds) and any(len(gold.split()) == 2 for gold in golds)
    assert {"True", "False"} <= set(golds)


def test_every_gold_is_reached_by_calls(task):
    examples = {example.id: example for example in task.examples}
    traces = [json.loads(line) for line in TRACES.read_text("utf-8").splitlines()]
    assert [trace["id"] for trace in traces] == [example.id for example in task.examples]
    for trace in traces:
        example = examples[trace["id"]]
        assert example.gold == trace["answer"] and example.question == trace["question"]
        tools = {tool.name: tool for tool in example.tools}
        assert set(tools) == {call["name"] for call in trace["calls"]}  # no tool is idle
        result = ""
        for call in trace["calls"]:
            result = tools[call["name"]].call_json(call["arguments"])
            assert result.kind == "ok"
            assert result in (json.dumps(call["result"], ensure_ascii=False), str(call["result"]))
        scores = task.score(example, f"<answer>{trace['answer']}</answer>", None, result)
        assert scores["correct"] and scores["strict_correct"]
        assert task.score(example, "no idea", None, result)["correct"]  # the last result holds the gold


def test_no_gold_stands_in_its_question_or_schemas(task):
    for example in task.examples:
        shown = example.question + json.dumps([tool.format_as_litellm_function_call() for tool in example.tools])
        if len(example.gold) > 3 and example.gold not in ("True", "False"):
            assert example.gold not in shown


def test_a_near_miss_gets_the_full_error(task):
    example = next(e for e in task.examples if "clock of Velden" in e.question)
    result = example.tools[0](town="Velden")
    assert "Velden (market town)" in result  # the tool names what it knows


def test_the_splits_are_fixed_and_disjoint():
    splits = load_splits("toolhop-sample")
    ids = {name: [example.id for example in part.examples] for name, part in splits.items()}
    assert {name: len(part) for name, part in ids.items()} == {"train": 20, "validation": 10, "test": 10}
    assert len({row_id for part in ids.values() for row_id in part}) == 40
    assert all(part.config["split_conformant"] for part in splits.values())


def test_a_score_on_the_sample_is_not_called_a_benchmark_score(task):
    assert "not a published benchmark" in task.summarize([])["score_label"]
