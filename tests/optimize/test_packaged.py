"""The compiled programs that come with the package: loaded by name, made by real jobs, better than where they began."""

from __future__ import annotations

import dspy
import pytest

from data import load_task
from metrics.evaluate import evaluate
from programs.compiled_file import CompiledFileError, describe_program, load_program, packaged_programs
from programs.lms import build_lm
from programs.registry import build_program

NAMES = ["toolhop-sample/centralized-mipro", "toolhop-sample/sequential-gepa", "hotpotqa-sample/agent_as_tool-gepa"]


def test_all_of_them_are_there():
    assert set(NAMES) <= set(packaged_programs())


@pytest.mark.parametrize("name", NAMES)
def test_the_header_says_where_it_comes_from(name):
    header = describe_program(name)
    dataset, _, rest = name.partition("/")
    program, _, method = rest.rpartition("-")
    assert (header["task"], header["program"], header["method"]) == (dataset, program, method)
    assert header["extra"]["embedded_model"] is True and header["models"] == {"default": "offline"}
    scores = header["scores"]
    assert scores["validation"]["after"] > scores["validation"]["before"]
    assert scores["test"]["after"] > scores["test"]["before"]
    assert header["rollouts"] <= 300


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_beats_the_plain_prompts_that_it_began_with(name):
    dataset, _, rest = name.partition("/")
    scores = []
    for program in (build_program(rest.rpartition("-")[0], prompts="plain"), load_program(name)):
        with dspy.context(lm=build_lm("offline")):
            summary = evaluate(program, load_task(dataset), threads=8, keep_traces=False)
        scores.append(summary["score"])
    assert scores[1] > scores[0]


def test_a_team_of_another_size_does_not_take_it():
    with pytest.raises(CompiledFileError, match=r"missing|extra"):
        load_program("toolhop-sample/centralized-mipro", team_size=2)
