"""Running the cells of a suite: one purse for all of them, and an end where going on makes no sense."""

from __future__ import annotations

import json

import dspy
import pytest

from metrics.errors import ConfigurationError
from metrics.evaluate import Limits, evaluate
from metrics.suite import Suite, run_suite, suite_lines, suite_table, write_suite
from tests.support.runs import Scripted, WordTask, right, scripted_lm

SUITE = Suite.from_dict(
    {
        "name": "s",
        "title": "A table",
        "scores": {"correct": "ACC"},
        "datasets": {"d1": "One", "d2": "Two"},
        "systems": [
            {"label": "A", "program": "a", "published": {"d1": [10.0], "d2": [20.0]}},
            {"label": "B", "program": "b", "options": {"size": 2}, "published": {"d1": [30.0]}},
            {"label": "C", "program": None, "note": "published only"},
        ],
    }
)
KEYS = ["d1/a", "d1/b-2", "d2/a", "d2/b-2"]


class Priced(Scripted):
    """Costs a dollar per question."""

    def forward(self, question, tools=None, answer_format=None):
        dspy.settings.usage_meter.record_call(
            role="a", index=0, model="m", prompt_tokens=1, completion_tokens=1, cached=False, cost=1.0, seconds=0.0,
            finish_reason="stop",
        )  # fmt: skip
        return super().forward(question, tools, answer_format)


def runs_of(behaviours=None, resume=False, seen=None):
    def make(key):
        def run(folder, max_usd):
            if seen is not None:
                seen.append((key, max_usd))
            with dspy.context(lm=scripted_lm()):
                return evaluate(
                    Priced((behaviours or {}).get(key, right)), WordTask(3), folder=folder, threads=1, resume=resume,
                    limits=Limits(max_usd=max_usd), config={"settings": {}}, facts={"model": "m/x"},
                )  # fmt: skip

        return run

    return {key: make(key) for key in KEYS}


def test_cells_run_in_order_and_the_table_holds_both_numbers(tmp_path):
    said = []
    summaries = run_suite(SUITE, tmp_path, runs_of({"d1/b-2": lambda q: "wrong"}), say=said.append)
    assert list(summaries) == KEYS and said[1] == "[2/4] One: B (b-2)"
    table = suite_table(SUITE, summaries)
    assert json.loads(write_suite(tmp_path, table).read_text())["complete"] is True
    assert [(c["system"], c["measured"] and c["measured"]["correct"], c["published"]) for c in table["cells"][:3]] == [
        ("A", 1.0, {"correct": 10.0}), ("B", 0.0, {"correct": 30.0}), ("C", None, {}),
    ]  # fmt: skip
    assert table["usd_billed"] == 12.0
    text = "\n".join(suite_lines(table))
    assert "4 runs: 12 model calls, 24 tokens, billed $12.0000" in text
    assert "model m/x" in text and "retriever none" in text and "published only" in text and "NOT COMPLETE" not in text
    with pytest.raises(ConfigurationError, match="holds runs already"):
        run_suite(SUITE, tmp_path, runs_of())


def test_all_cells_share_one_purse_also_over_a_resume(tmp_path):
    seen = []
    summaries = run_suite(SUITE, tmp_path, runs_of(seen=seen), max_usd=5.0)
    assert seen == [("d1/a", 5.0), ("d1/b-2", 2.0)]
    assert list(summaries) == KEYS[:2] and summaries["d1/b-2"]["stopped_by"] == "max_usd"
    seen.clear()
    summaries = run_suite(SUITE, tmp_path, runs_of(resume=True, seen=seen), max_usd=8.0, resume=True)
    assert seen == [("d1/a", 6.0), ("d1/b-2", 5.0), ("d2/a", 2.0)]
    assert summaries["d2/a"]["n_missing"] == 1
    lines = suite_lines(suite_table(SUITE, summaries))
    assert any("* 1 of 3 not run (max_usd)" in line for line in lines) and any("* not run" in line for line in lines)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_and_a_cell_without_any_score_end_it(tmp_path, error):
    def broken(question):
        raise error("down")

    said = []
    summaries = run_suite(SUITE, tmp_path, runs_of({"d1/b-2": broken}), say=said.append)
    assert list(summaries) == KEYS[:2]
    assert said[-1].startswith("the suite ends here (") and "--resume" in said[-1]
    table = suite_table(SUITE, summaries)
    assert not table["complete"] and table["cells"][1]["measured"]["correct"] is None


def test_a_cell_with_some_errors_does_not_end_it_and_is_marked(tmp_path):
    def sometimes(question):
        if question == "word 1":
            raise RuntimeError("boom")
        return right(question)

    summaries = run_suite(SUITE, tmp_path, runs_of({"d1/a": sometimes}))
    assert list(summaries) == KEYS
    table = suite_table(SUITE, summaries)
    line = next(line for line in suite_lines(table) if line.startswith("* A "))
    assert line.split()[2:5] == ["100.0", "2", "1"] and "* questions with errors have no score" in line
    assert not table["complete"]
