"""A scripted model that replays recorded calls gets every row right, officially and strictly, in both modes."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import dspy
import pytest

from programs import build_program
from tests.support.engines import (
    ScriptedEngine,
    act,
    chat_reply,
    field_of,
    make_lm,
    native_reply,
    say,
    user_of,
)

REAL = os.environ.get("HOPTEAM_REAL_DATA")
SAMPLE = Path(__file__).parents[1] / "data" / "toolhop_sample_traces.jsonl"


def traces(path):
    with open(path, encoding="utf-8") as lines:
        return {row["question"].strip(): row for row in map(json.loads, lines)}


def replay(gold, request):
    """One recorded call per turn, then the gold answer; managers delegate the whole question, aggregators copy."""
    text = user_of(request)
    question = field_of(request, "question")
    row = gold[question.strip()]
    final = f"<answer>{row['answer']}</answer>"
    if "[[ ## reports ## ]]" in text:
        return chat_reply(reasoning="copied", answer=final if row["answer"] in text else "not reported")
    seen = field_of(request, "trajectory")
    done = sum(line.startswith("step ") for line in seen.splitlines())
    native = bool(request.tools)
    agents = [tool.name for tool in request.tools or () if tool.name.startswith("ask_")]
    if agents or "ask_tool_caller" in field_of(request, "tools"):
        if done:
            return "the value is reported" if native else say("the value is reported", field="report")
        call = ("ask_tool_caller", {"question": question})
        return native_reply(call) if native else act(call)
    if done < len(row["calls"]):
        call = row["calls"][done]
        name = shown_name(row["calls"], done, text if not native else " ".join(tool.name for tool in request.tools))
        return native_reply((name, call["arguments"])) if native else act((name, call["arguments"]))
    output = "report" if "`[[ ## report ## ]]`" in text else "answer"
    return final if native else say(final, field=output)


def shown_name(calls, position, offered):
    """The k-th call of a name that two tools of the row share goes to the k-th of them."""
    name = calls[position]["name"]
    if f"{name}__0" not in offered:
        return name
    return f"{name}__{[call['name'] for call in calls[:position]].count(name)}"


def score_all(program, task, gold):
    engine = ScriptedEngine(partial(replay, gold))
    right = []
    with dspy.context(lm=make_lm(engine)):
        for example in task.examples:
            if example.question.strip() not in gold:
                continue
            prediction = program(**example.inputs())
            scores = task.score(example, prediction.final_text, prediction.answer, prediction.last_tool_result)
            right.append(bool(scores["correct"] and scores["strict_correct"]))
            assert prediction.parse_errors == prediction.tool_args_errors == 0
    return right


@pytest.mark.parametrize("mode", ["text", "native"])
@pytest.mark.parametrize("name", ["single", "centralized"])
def test_the_packaged_sample_replays(name, mode):
    from data import load_task

    gold = traces(SAMPLE)
    right = score_all(build_program(name, tool_calling=mode), load_task("toolhop-sample", split="test"), gold)
    assert right
    assert all(right)


@pytest.mark.real_data
@pytest.mark.skipif(not REAL, reason="HOPTEAM_REAL_DATA names no folder with real rows")
@pytest.mark.parametrize(("name", "mode"), [("single", "text"), ("single", "native"), ("centralized", "text")])
def test_all_recorded_real_rows_replay(name, mode, monkeypatch):
    from data import load_task

    monkeypatch.setenv("TOOLHOP_ALLOW_DATASET_EXEC", "1")
    folder = Path(REAL) / "toolhop"
    gold = traces(folder / "gold_traces.jsonl")
    task = load_task("toolhop", split="all", data_file=str(folder / "toolhop_180.json"))
    right = score_all(build_program(name, tool_calling=mode), task, gold)
    assert (len(right), sum(right)) == (51, 51)
