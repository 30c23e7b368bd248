"""What a row hides reaches no prompt, tool, trace, prediction, demo or configuration, whatever dataset and program."""

from __future__ import annotations

import json
import pickle

import dspy
import pytest

from data import load_task
from data.registry import TASKS
from metrics.evaluate import evaluate
from programs import PROGRAMS, build_program, save_program
from tests.support.engines import ScriptedEngine, act, finish_role, make_lm, native_reply, system_of, user_of

MARK = "kumquat7319"  # stands in everything that must stay hidden
WIKI = ("hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
FILED = ("toolhop", *WIKI)
PARTS_THAT_STATE_GOLDS = {"results.jsonl", "report.html"}  # for people, after the run


def toolhop_row(number):
    def schema(name):
        properties = {"x": {"type": "string"}}
        return {"name": name, "description": "Looks.", "parameters": {"type": "object", "properties": properties}}

    sources = [
        f"# {MARK}\ndef look(x='a'):\n    '''{MARK}'''\n    {MARK} = 1\n    return x\n",
        f"def fails(x='a'):\n    {MARK} = 1\n    return undefined_name\n",
        f"def broken(x='a')\n    return '{MARK}'\n",
        f"def absent(x='a'):\n    return 1\nraise ValueError('{MARK}')\n",
    ]
    names = ("look", "fails", "broken", "absent")
    return {
        "id": number,
        "question": f"What is number {number}?",
        "answer": f"{MARK}-gold-{number}",
        "sub_task": {f"{MARK} sub-question": f"{MARK} sub-answer"},
        "tools": {f"{MARK} key {name}": schema(name) for name in names},
        "functions": sources,
        "domain": f"{MARK}-domain",
        "answer_type": MARK,
        "previous_answer_type": MARK,
    }


def wiki_row(number):
    """One row that has the hidden fields of all four sets."""
    hidden = f"{MARK}-gold-{number}"
    return {
        "id": f"row{number}", "_id": f"row{number}", "question": f"Who built number {number}?", "answer": hidden,
        "type": "bridge", "level": "hard", "supporting_facts": [[MARK, 0]], "context": [[MARK, [MARK]]],
        "evidences": [[MARK, MARK, MARK]], "evidences_id": [MARK], "answer_id": MARK, "entity_ids": MARK,
        "paragraphs": [{"idx": 0, "title": MARK, "paragraph_text": MARK, "is_supporting": True}],
        "question_decomposition": [{"id": 1, "question": MARK, "answer": MARK}], "answer_aliases": [hidden + "-alias"],
        "answerable": True, "golden_answers": [hidden, hidden + "-alias"], "q1": MARK, "a1": [MARK], "q2": MARK,
        "a2": [MARK],
    }  # fmt: skip


@pytest.fixture
def task_of(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLHOP_ALLOW_DATASET_EXEC", "1")
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"title": "Number 1", "paragraphs": ["Number 1 was built by somebody."]}) + "\n")

    def load(name):
        path = tmp_path / f"{name}.jsonl"
        rows = [(toolhop_row if name == "toolhop" else wiki_row)(number) for number in range(3)]
        path.write_text("\n".join(map(json.dumps, rows)))
        wiki = None if name == "toolhop" else f"corpus:{corpus}"
        return load_task(name, split="all", data_file=str(path), wiki=wiki)

    return load


def busy_engine():
    """Calls every tool once (a wrong argument among them), then answers."""
    tried: set[str] = set()

    def reply(request):
        text = system_of(request) + user_of(request)
        question = text.split("[[ ## question ## ]]")[-1][:300]
        names = [name for name in ("look", "fails", "broken", "absent", "wikipedia_search", "wikipedia_page")
                 if f'"{name}"' in text or any(tool.name == name for tool in request.tools or ())]
        if not names or question in tried:
            return finish_role(request)
        tried.add(question)
        calls = [(name, {"query": "Number 1"} if "search" in name else {"title": "Number 1"} if "page" in name else {})
                 for name in names] + [(names[0], {"x": 5, "nonsense": None})]
        return native_reply(*calls) if request.tools else act(*calls)

    return ScriptedEngine(reply)


def sent(engine):
    """Everything that went out, tool schemas included."""
    return "\n".join(
        f"{system_of(request)}\n{[message.text for message in request.messages]}\n{request.tools}"
        for request in engine.requests
    )


@pytest.mark.parametrize("dataset", FILED)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_run_shows_and_keeps_nothing_hidden(task_of, tmp_path, dataset, program):
    engine, folder = busy_engine(), tmp_path / "run"
    team = build_program(program)
    with dspy.context(lm=make_lm(engine)):
        summary = evaluate(team, task_of(dataset), folder=folder, threads=2)
    assert summary["n_scored"] == 3 and engine.requests
    assert MARK not in sent(engine)
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in PARTS_THAT_STATE_GOLDS | {"summary.json"}:
            assert MARK not in path.read_text("utf-8"), path.name
    assert f"{MARK}-gold" not in (folder / "summary.json").read_text("utf-8")  # domains may group the scores


@pytest.mark.parametrize("dataset", FILED)
@pytest.mark.parametrize("mode", ["text", "native"])
def test_both_modes_of_tool_calling_show_nothing_hidden(task_of, dataset, mode):
    engine = busy_engine()
    with dspy.context(lm=make_lm(engine)):
        summary = evaluate(build_program("single", tool_calling=mode), task_of(dataset), threads=1)
    assert summary["tool_calls"] >= 9, "the tools did run"
    assert MARK not in sent(engine)


@pytest.mark.parametrize("dataset", FILED)
def test_what_dspy_prints_of_an_example_has_nothing_hidden(task_of, dataset):
    for example in task_of(dataset).examples:
        inputs = {name: value for name, value in example.inputs().items() if name != "tools"}
        shown = [repr(example), str(example), f"{example.toDict()}", str(dict(example.items())), str(inputs)]
        shown += [str(tool) + repr(tool) + json.dumps(tool.format_as_litellm_function_call()) for tool in example.tools]
        assert MARK not in "".join(shown)
        assert MARK in str(pickle.loads(pickle.dumps(example)).gold)  # the metric still reaches it


@pytest.mark.parametrize("dataset", ["toolhop", "hotpotqa"])
def test_a_compiled_file_has_the_programs_own_words_only(task_of, tmp_path, dataset):
    team = build_program("single")
    with dspy.context(lm=make_lm(busy_engine())):
        optimizer = dspy.BootstrapFewShot(
            metric=lambda example, prediction, trace=None: True, max_bootstrapped_demos=2, max_labeled_demos=0
        )
        compiled = optimizer.compile(team, trainset=task_of(dataset).examples)
    assert compiled.solver.demos
    path = save_program(compiled, tmp_path / "tuned.json")
    assert MARK not in path.read_text("utf-8")


def test_every_dataset_that_reads_files_is_covered():
    assert set(FILED) == {name for name, entry in TASKS.items() if not entry.in_full}
