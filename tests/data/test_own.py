"""A user's own questions: what a file may look like, which rows are run, when an answer is right, what is refused."""

from __future__ import annotations

import json
import pickle
import sys

import pytest

from data import load_splits, load_task
from data.own import load_object
from metrics.errors import ConfigurationError
from metrics.exact_match import score

ROWS = [{"question": f"What is {i} plus 1?", "answer": str(i + 1)} for i in range(12)]


def add(a: int, b: int) -> int:
    return a + b


MORE = [len, max]


@pytest.fixture
def file(tmp_path):
    def write(content, name="questions.jsonl"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


def lines(rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def test_every_form_of_the_file_gives_the_same_rows(file):
    common = {"tools": "tests.data.test_own:add", "answer_format": "a number"}
    given = [{**row, **common} for row in ROWS]
    paths = [
        file(lines(given)),
        file(given, "list.json"),
        file({**common, "rows": ROWS}, "object.json"),
        file(json.dumps({**common, "rows": ROWS}, indent=1), "pretty.json"),
    ]
    for path in paths:
        task = load_task("own", split="all", data_file=path)
        assert [(e.id, e.question, e.gold) for e in task.examples] == [
            (i, row["question"], row["answer"]) for i, row in enumerate(ROWS)
        ]
        assert task.examples[0].tools == [add] and task.examples[0].answer_format == "a number"
    assert load_task("own", split="all", data_file=paths[0], scenario="direct").examples[0].tools == []


def test_the_splits_are_drawn_from_the_file_and_the_test_split_is_the_default(file):
    path = file(lines(ROWS))
    splits = load_splits("own", data_file=path)
    assert {name: len(task.examples) for name, task in splits.items()} == {"train": 6, "validation": 2, "test": 4}
    assert len({e.id for task in splits.values() for e in task.examples}) == 12
    task = load_task("own", data_file=path)
    assert [e.id for e in task.examples] == [e.id for e in splits["test"].examples]
    assert "4 of 12 rows" in task.notices[0]
    assert task.config["split_conformant"] is False
    assert [e.id for e in load_task("own", data_file=path, split="all", only=["3", "7"]).examples] == [3, 7]


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("Ada Lovelace", "ada lovelace.", True), ("1000", "1,000.0", True), (7, "7", True),
        ("The U.S.", "the US", True),
        ("Paris", "London", False), ("Paris", "It is Paris", False), ("7", "", False), ("7", None, False),
    ],
)  # fmt: skip
def test_an_answer_is_right_when_it_equals_the_gold_case_and_punctuation_aside(gold, answer, right):
    assert score(gold, "", answer)["correct"] is right


def test_any_of_several_accepted_answers_is_right_and_the_first_is_shown(file):
    given = [{**row, "answer": ["1990", "nineteen ninety", 7]} for row in ROWS]
    task = load_task("own", split="all", data_file=file(lines(given)))
    example = task.examples[0]
    verdicts = [task.score(example, "", answer, "")["correct"] for answer in ("1990", "Nineteen-ninety!", "7", "199")]
    assert verdicts[:1] + verdicts[2:] == [True, True, False]
    assert task.score(example, "", "nineteen ninety", "")["correct"] is True
    assert example.gold == "1990" and example.copy().accepted == pickle.loads(pickle.dumps(example)).accepted
    assert "nineteen" not in str({**dict(example.items()), "": repr(example)})


def test_tools_are_a_name_or_a_list_of_names(file):
    here = "tests.data.test_own"
    given = [{**ROWS[0], "tools": [f"{here}:add", f"{here}:MORE"]}, {**ROWS[1], "tools": f"{here}:MORE"}]
    first, second = load_task("own", split="all", data_file=file(lines(given))).examples
    assert (first.tools, second.tools) == ([add, len, max], [len, max])


def test_without_an_answer_field_the_final_message_counts():
    assert score("Paris", "I looked it up.\nAnswer: Paris", None) == {"correct": True, "predicted_answer": "Paris"}


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        ("question,answer\na,b\n", "q.csv", "JSON lines (an object per line), a JSON list of objects"),
        ("Hello there", "q.txt", "JSON lines (an object per line), a JSON list of objects"),
        ('"text"', "q.json", "JSON lines (an object per line), a JSON list of objects"),
        ("[1, 2]", "q.json", "row 0 is no object: expected JSON lines"),
        ("", "q.jsonl", "holds no rows: expected JSON lines"),
        ('{"rows": 3}', "q.json", "`rows` must be a list of objects"),
        ('{"question": "x"}', "q.jsonl", "row 0: `question` and `answer` are needed"),
        ('{"question": "x", "answer": "y", "id": [1]}', "q.jsonl", "the id must be a number or a text"),
        ('{"question": "x", "answer": "y", "answer_format": 3}', "q.jsonl", "`answer_format` must be a sentence"),
        ('{"question": "x", "answer": "y", "tools": "nonsense"}', "q.jsonl", "takes package.module:NAME"),
        ('{"question": "x", "answer": "y", "tools": [{"name": "add"}]}', "q.jsonl", "or a list of such names, got {"),
        ('{"question": "x", "answer": "y", "tools": ["os:sep"]}', "q.jsonl", "['os:sep'] leads to '/'"),
        ('{"question": "x", "answer": []}', "q.jsonl", "or a list of accepted ones, got []"),
        ('{"question": "x", "answer": ["y", ["z"]]}', "q.jsonl", "or a list of accepted ones, got ['y', ['z']]"),
        ('{"question": "x", "answer": ["y", ""]}', "q.jsonl", "or a list of accepted ones"),
        ('{"question": "x", "answer": {"y": 1}}', "q.jsonl", "or a list of accepted ones"),
        (lines([{**ROWS[0], "id": 1}, {**ROWS[1], "id": 1}]), "q.jsonl", "more than once"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_clear_line(file, content, name, says):
    with pytest.raises(ConfigurationError) as caught:
        load_task("own", data_file=file(content, name))
    assert says in str(caught.value) and name in str(caught.value)


def test_what_does_not_apply_is_refused(file):
    path = file(lines(ROWS[:2]))
    with pytest.raises(ConfigurationError, match="--data-file QUESTIONS"):
        load_task("own")
    with pytest.raises(ConfigurationError, match="--wiki does not apply"):
        load_task("own", data_file=path, wiki="live")
    with pytest.raises(ConfigurationError, match="at least 3 rows"):
        load_splits("own", data_file=path)
    assert len(load_task("own", data_file=path, split="all").examples) == 2


@pytest.mark.parametrize(("source", "said"), [("x = y", "NameError"), ("def f(:", "SyntaxError"), ("", "no_such")])
def test_a_module_that_cannot_be_imported_is_a_line(tmp_path, monkeypatch, source, said):
    (tmp_path / "broken_module.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "broken_module", raising=False)
    with pytest.raises(ConfigurationError, match=rf"--metric broken_module:no_such: .*{said}"):
        load_object("broken_module:no_such", "--metric")
