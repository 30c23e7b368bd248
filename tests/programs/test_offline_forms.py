"""The embedded model writes what it is asked for: reports in every format and mode, and answers without tools."""

from __future__ import annotations

import dspy
import pytest

from data import load_task
from metrics.evaluate import evaluate
from programs import build_lm, build_program
from tests.support.flow_script import FORMATS


def summary(name, dataset="toolhop-sample", limit=3, scenario="free", **options):
    task = load_task(dataset, limit=limit, scenario=scenario)
    with dspy.context(lm=build_lm("offline")):
        return evaluate(build_program(name, scenario=scenario, **options), task, threads=2, keep_traces=False)


@pytest.mark.parametrize("mode", ["text", "native"])
@pytest.mark.parametrize("communication", FORMATS)
@pytest.mark.parametrize("name", ["sequential", "centralized", "decentralized", "agent_as_tool"])
def test_every_handoff_has_the_form_that_is_asked_for(name, communication, mode):
    result = summary(name, communication=communication, tool_calling=mode)
    assert result["accuracy"] == 1.0
    assert result["n_handoffs"] == result["n_handoffs_parsed"] > 0


def test_a_single_search_result_is_read():
    direct, searched = (summary(name, "hotpotqa-sample", limit=None) for name in ("direct", "direct_search"))
    given_up = [sum(row["predicted_answer"] == "unknown" for row in result["rows"]) for result in (direct, searched)]
    assert given_up[0] > 5 and given_up[1] == 0 and searched["em"] >= direct["em"]


def test_an_agent_without_tools_guesses_like_a_model_without_tools():
    direct = summary("direct", "hotpotqa-sample", limit=None)
    agent = summary("chat_agent", "hotpotqa-sample", limit=None, scenario="direct")
    assert agent["em"] == direct["em"] > 0
    assert [row["predicted_answer"] for row in agent["rows"]] == [row["predicted_answer"] for row in direct["rows"]]
