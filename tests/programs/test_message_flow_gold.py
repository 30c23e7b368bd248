"""Recorded calls replayed through every program and size: every row right, officially and strictly."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import dspy
import pytest

from programs import build_program
from tests.programs.test_gold_replay import SAMPLE, replay, traces
from tests.support.engines import ScriptedEngine, chat_reply, field_of, fields_of, make_lm, say

REAL = os.environ.get("HOPTEAM_REAL_DATA")
SIZES = (2, 4, 8, 10)
PROGRAMS = [
    *((name, {"team_size": size})
      for name in ("independent", "decentralized", "sequential", "centralized") for size in SIZES),
    *((name, {"communication": c}) for name in ("sequential", "decentralized", "agent_as_tool")
      for c in ("semi_structured", "structured_soft")),
    ("decentralized", {"rounds": 3}),
    ("agent_as_tool", {}),
    ("chat_agent", {}),
    ("search_r1", {}),
]  # fmt: skip


def replay_team(gold, request):
    """Stages without tools add nothing; a planner answers from the observation; all others replay the calls."""
    fields = fields_of(request)
    if "tools" not in fields and "reports" not in fields:
        return chat_reply(thought="nothing to add", report="go on")
    if "ask_tool_caller" in fields.get("tools", "") and "(no steps yet)" not in fields["trajectory"]:
        answer = gold[field_of(request, "question").strip()]["answer"]
        final = f"<answer>{answer}</answer>" if answer in fields["trajectory"] else "not reported"
        if "`[[ ## answer ## ]]`" in request.messages[-1].text:
            return say(final)
    said = replay(gold, request)
    both = all(f"`[[ ## {name} ## ]]`" in request.messages[-1].text for name in ("report", "answer"))
    return said.replace("[[ ## report ## ]]", "[[ ## answer ## ]]") if both else said


def scores(task, gold, name, options, examples):
    right = []
    with dspy.context(lm=make_lm(ScriptedEngine(partial(replay_team, gold)))):
        program = build_program(name, **options)
        for example in examples:
            prediction = program(**example.inputs())
            score = task.score(example, prediction.final_text, prediction.answer, prediction.last_tool_result)
            right.append(bool(score["correct"] and score["strict_correct"]))
    return right


@pytest.mark.parametrize(("name", "options"), PROGRAMS)
def test_rows_of_the_packaged_sample(name, options):
    from data import load_task

    task, gold = load_task("toolhop-sample", split="test"), traces(SAMPLE)
    examples = [e for e in task.examples if e.question.strip() in gold][:3]
    assert scores(task, gold, name, options, examples) == [True] * 3


def real_rows(every):
    """The task of the real file, the recorded calls, and every n-th row that has some."""
    from data import load_task

    folder = Path(REAL) / "toolhop"
    gold = traces(folder / "gold_traces.jsonl")
    task = load_task("toolhop", split="all", data_file=str(folder / "toolhop_180.json"))
    return task, gold, [e for e in task.examples if e.question.strip() in gold][::every]


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.skipif(not REAL, reason="HOPTEAM_REAL_DATA names no folder with real rows")
@pytest.mark.parametrize("name", ["independent", "decentralized", "sequential", "agent_as_tool"])
def test_all_recorded_real_rows(name, monkeypatch):
    monkeypatch.setenv("TOOLHOP_ALLOW_DATASET_EXEC", "1")
    task, gold, examples = real_rows(1)
    right = scores(task, gold, name, {}, examples)
    assert (len(right), sum(right)) == (51, 51)


@pytest.mark.real_data
@pytest.mark.skipif(not REAL, reason="HOPTEAM_REAL_DATA names no folder with real rows")
@pytest.mark.parametrize("size", [2, 8, 10])
@pytest.mark.parametrize("name", ["independent", "decentralized", "sequential", "centralized"])
def test_real_rows_at_every_size(name, size, monkeypatch):
    monkeypatch.setenv("TOOLHOP_ALLOW_DATASET_EXEC", "1")
    task, gold, examples = real_rows(17)
    assert scores(task, gold, name, {"team_size": size}, examples) == [True] * 3
