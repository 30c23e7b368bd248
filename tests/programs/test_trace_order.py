"""The order of calls in a trace is the program's, whatever the threads did."""

from __future__ import annotations

import random
import time

import pytest

from metrics.example import QuestionExample
from metrics.rollout import run_rollout
from programs import build_lm, build_program
from programs.offline_lm import OfflineEngine


def mayor_of(town: str) -> str:
    """Name of the mayor of a town."""
    return {"Oskarby": "Ebba Strand"}[town]


def birth_year(person: str) -> int:
    """Year in which a person was born."""
    return {"Ebba Strand": 1961}[person]


def shape(program, monkeypatch, seed):
    """Who called in which order, with tools, while every reply takes a random moment."""
    import dspy

    complete, rng = OfflineEngine.complete, random.Random(seed)

    def slow(self, request):
        time.sleep(rng.random() * 0.01)
        return complete(self, request)

    example = QuestionExample(
        id="1", question="In which year was the mayor of Oskarby born?", gold="1961", tools=[mayor_of, birth_year],
        answer_format=None, meta={},
    ).with_inputs("question", "tools", "answer_format")  # fmt: skip
    with monkeypatch.context() as patch, dspy.context(lm=build_lm("offline")):
        patch.setattr(OfflineEngine, "complete", slow)
        trace = run_rollout(program, example, lambda *_: {"correct": True}, seed=0, phase="test").trace
    calls = [(tuple(c["agent"].values()), [m["text"] for m in c["messages"]], c["reply"]) for c in trace["calls"]]
    tools = [(tuple(t["agent"].values()), t["name"], t["arguments"]) for t in trace["tools"]]
    return calls, tools, list(trace["texts"])


@pytest.mark.parametrize("name", ["decentralized", "independent", "centralized", "agent_as_tool"])
def test_the_order_does_not_depend_on_threads(monkeypatch, name):
    first = shape(build_program(name), monkeypatch, 1)
    assert all(shape(build_program(name), monkeypatch, seed) == first for seed in (2, 3))
    assert not any("place" in call for call in first[0])


def test_debaters_follow_each_other_round_by_round(monkeypatch):
    calls, _tools, _texts = shape(build_program("decentralized"), monkeypatch, 1)
    order = [(round, index) for (_role, index, round), *_ in calls]
    assert order == sorted(order) and len({index for _, index in order}) == 4
