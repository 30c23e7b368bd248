"""The embedded model as a team member: what it solves in the packaged samples, and that prompts and roles matter.

Scores here are of a rule-based engine, not of a language model.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import dspy
import pytest

from data import load_task
from programs import build_program
from programs.lms import build_lm

SAMPLES = ("toolhop-sample", "hotpotqa-sample")


def run(program, task, rows=None):
    correct, predictions = 0.0, []
    with dspy.context(lm=build_lm("offline"), trace=None, disable_history=True):
        for example in task.examples[:rows]:
            prediction = program(question=example.question, tools=example.tools, answer_format=example.answer_format)
            scores = task.score(example, prediction.final_text, prediction.answer, prediction.last_tool_result)
            correct += scores[task.primary]
            predictions.append(prediction)
    return correct / len(predictions), predictions


@pytest.fixture(scope="module", params=SAMPLES)
def sample(request):
    return load_task(request.param, split="all")


def test_single_solves_the_samples_with_good_prompts_and_not_with_plain_ones(sample):
    assert run(build_program("single"), sample)[0] >= 0.8
    assert run(build_program("single", prompts="plain"), sample)[0] <= 0.6


def test_native_and_text_mode_answer_alike(sample):
    text = run(build_program("single"), sample, 12)[1]
    native = run(build_program("single", tool_calling="native"), sample, 12)[1]
    assert [p.answer for p in text] == [p.answer for p in native]


@pytest.mark.parametrize("program", ["centralized", "sequential", "agent_as_tool", "independent", "decentralized"])
def test_teams_work_and_need_their_prompts(program, sample):
    rows = 16
    good, predictions = run(build_program(program), sample, rows)
    plain, _ = run(build_program(program, prompts="plain"), sample, rows)
    assert good >= 0.6
    assert plain <= good - 0.3
    assert all(prediction.answer for prediction in predictions)


@pytest.mark.parametrize("communication", ["semi_structured", "structured_soft"])
@pytest.mark.parametrize("program", ["centralized", "sequential"])
def test_every_communication_format_is_written_and_read(program, communication, sample):
    score, predictions = run(build_program(program, communication=communication), sample, 8)
    assert score >= 0.6
    assert all(prediction.reports["parse_rate"] == 1.0 for prediction in predictions)


def test_a_manager_delegates_sub_questions_and_reads_the_reports():
    task = load_task("toolhop-sample", split="train")
    _, predictions = run(build_program("centralized"), task, 6)
    asked = [
        call["args"]["question"]
        for prediction in predictions
        for agent in prediction.trajectory
        if agent["agent"]["role"] == "manager"
        for step in agent["steps"]
        for call in step["calls"]
    ]
    assert len(asked) > len(predictions), "several delegations per question"
    assert all(question.endswith("?") for question in asked)


def test_sampling_peers_differ_and_greedy_ones_do_not():
    task = load_task("toolhop-sample", split="train")
    greedy = build_program("independent", prompts="plain", decoding={"temperature": 0.0})
    sampled = build_program("independent", prompts="plain")
    assert all(len(_finals(p)) == 1 for p in run(greedy, task, 8)[1])
    assert any(len(_finals(p)) > 1 for p in run(sampled, task, 8)[1])


def _finals(prediction):
    return {agent["final_text"] for agent in prediction.trajectory}


def test_a_question_without_tools_is_answered_honestly():
    with dspy.context(lm=build_lm("offline")):
        prediction = build_program("single")(question="Who is the mayor of Alm?", answer_format="a name")
    assert prediction.answer == "unknown"


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.skipif("HOPTEAM_REAL_DATA" not in os.environ, reason="HOPTEAM_REAL_DATA is not set")
def test_every_real_row_ends_with_an_answer(monkeypatch):
    monkeypatch.setenv("TOOLHOP_ALLOW_DATASET_EXEC", "1")
    root = Path(os.environ["HOPTEAM_REAL_DATA"])
    toolhop = load_task("toolhop", split="all", data_file=root / "toolhop/toolhop_180.json", limit=0)
    hotpotqa = load_task(
        "hotpotqa",
        split="all",
        data_file=root / "hotpotqa/validation_first100.jsonl",
        wiki=f"corpus:{root / 'corpus/hotpotqa_first100_pages.jsonl'}",
        limit=0,
    )
    for task in (toolhop, hotpotqa):
        _, predictions = run(build_program("single"), task)
        stopped = Counter(prediction.stopped for prediction in predictions)
        assert len(predictions) == len(task.examples)
        assert stopped[None] >= 0.8 * len(predictions), stopped
