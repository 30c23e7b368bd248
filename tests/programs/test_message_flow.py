"""Who sees what, in which order, with how many calls: every program, size and format against a recording model."""

from __future__ import annotations

import json
import re

import pytest

from programs.centralized import WORKERS
from programs.sequential import STAGES, WITH_TOOLS
from tests.support.flow_script import FORM, FORMATS, QUESTION, SIZES, TeamScript, run

L = 2  # the script's tool agents call a tool once and finish


def said(text: str) -> list[str]:
    """Authors of the messages in a text, in order: `role-index-round`."""
    return list(dict.fromkeys(re.findall(r"said-by-(\w+-\d+-\d+)", text)))


def body(token: str, communication: str) -> str:
    prefix = {"freeform": "", "semi_structured": "[SUMMARY] ", "structured_soft": "summary: "}
    return prefix[communication] + token


def check_counts(prediction, engine):
    """What a prediction says about itself is what the model saw."""
    assert prediction.n_lm_calls == len(engine.calls)
    assert sum(entry["n_lm_calls"] for entry in prediction.trajectory) == len(engine.calls)
    recorded = [tuple(entry["agent"].values()) for entry in prediction.trajectory]
    assert set(recorded) == {call.key for call in engine.calls} and len(set(recorded)) == len(recorded)
    json.dumps(prediction.toDict())


@pytest.mark.parametrize("communication", FORMATS)
@pytest.mark.parametrize("size", SIZES)
def test_sequential(size, communication):
    prediction, engine, _ = run("sequential", TeamScript(communication), team_size=size, communication=communication)
    stages = STAGES[size]
    with_tools = [role for role in stages if role in WITH_TOOLS]
    assert len(engine.calls) == (size - len(with_tools)) + len(with_tools) * L
    assert len(engine.calls) == {2: 1 + L, 4: 2 + 2 * L, 8: 6 + 2 * L, 10: 8 + 2 * L}[size]
    assert list(dict.fromkeys(engine.roles)) == list(stages)
    for position, role in enumerate(stages):
        earlier = [f"{stage}-0-1" for stage in stages[:position]]
        for call in engine.of(role):
            field = "reports" if role == "aggregator" else "context"
            assert said(call.fields[field]) == earlier
            for author in earlier:
                assert body(f"said-by-{author}", communication) in call.fields[field]
            assert call.fields["question"] == QUESTION
            assert ("tools" in call.fields) == (role in WITH_TOOLS)
            assert (FORM in call.fields["answer_format"]) == (role == "aggregator")
            if not earlier:
                assert call.fields[field] == "(none)"
    assert prediction.answer == "1815 said-by-aggregator-0-1" and prediction.last_tool_result == ""
    reports = prediction.reports
    assert (reports["n"], reports["parse_ok"], reports["parse_rate"]) == (size - 1, size - 1, 1.0)
    assert reports["errors"] == []
    check_counts(prediction, engine)


@pytest.mark.parametrize("size", SIZES)
def test_independent(size):
    prediction, engine, _ = run("independent", TeamScript(), team_size=size)
    assert len(engine.calls) == size * L
    for index in range(size):
        calls = engine.of("solver", index)
        assert len(calls) == L and all("context" not in call.fields for call in calls)
        assert {author for call in calls for author in said(call.user)} <= {f"solver-{index}-1"}
    assert len({call.config.seed for call in engine.calls}) == size * L  # no two requests share a seed or a cache key
    assert [entry["agent"]["index"] for entry in prediction.trajectory] == list(range(size))
    assert prediction.answer == "1815 said-by-solver-0-1"  # all differ: the earliest
    assert prediction.last_tool_result == '"tool value for said-by-solver-0-1-0"'
    check_counts(prediction, engine)


@pytest.mark.parametrize("communication", FORMATS)
@pytest.mark.parametrize(("size", "rounds"), [(2, 2), (4, 1), (4, 2), (4, 3), (8, 2), (10, 2)])
def test_decentralized(size, rounds, communication):
    prediction, engine, _ = run(
        "decentralized", TeamScript(communication), team_size=size, rounds=rounds, communication=communication
    )
    assert len(engine.calls) == size * rounds * L
    for round in range(1, rounds + 1):
        before = [f"debater-{k}-{round - 1}" for k in range(size)] if round > 1 else []
        for index in range(size):
            for call in engine.of("debater", index, round):
                context = call.fields["context"]
                assert said(context) == before  # all of the last round, nothing older, nothing of this one
                for k in range(size if before else 0):
                    assert f"=== from debater {k + 1}{' (you)' if k == index else ''} ===" in context
                if before and communication == "freeform":
                    assert all(f"1815 said-by-{author}" in context for author in before)  # the final messages
                elif before:
                    assert all(body(f"said-by-{author}", communication) in context for author in before)
                else:
                    assert context == "(none)"
                assert call.fields["question"] == QUESTION and "lookup" in call.fields["tools"]
    order = [call.round for call in engine.calls]
    assert order == sorted(order)  # a round starts when the one before is complete
    assert prediction.answer == f"1815 said-by-debater-0-{rounds}"
    assert prediction.reports["n"] == prediction.reports["parse_ok"] == size * (rounds - 1)
    check_counts(prediction, engine)


@pytest.mark.parametrize("communication", FORMATS)
@pytest.mark.parametrize("size", SIZES)
def test_centralized(size, communication):
    workers = list(WORKERS[size])
    script = TeamScript(communication, delegations=[workers, [workers[0]]])
    prediction, engine, _ = run("centralized", script, team_size=size, communication=communication)
    managers, n = engine.of("manager"), len(workers) + 1
    assert len(managers) == 3 and len(engine.calls) == len(managers) + n * L + 1
    for call in managers:
        assert set(re.findall(r'"name": "(\w+)"', call.fields["tools"])) == {f"ask_{role}" for role in workers}
    assert said(managers[1].fields["trajectory"]) == [f"{role}-0-1" for role in workers]  # in the order of the calls
    assert said(managers[2].fields["trajectory"])[-1] == f"{workers[0]}-0-2"
    for role in workers:
        for call in engine.of(role, round=1):
            assert f"task-0-for-{role}" in call.fields["question"]
            assert call.fields["context"] == "(none)" and '"lookup"' in call.fields["tools"]
            assert QUESTION not in call.user and FORM not in call.user  # nothing but the delegation
            assert set(said(call.user)) <= {f"{role}-0-1"}
            assert not any(f"task-0-for-{other}" in call.user for other in workers if other != role)
    for call in engine.of(workers[0], round=2):
        assert f"task-1-for-{workers[0]}" in call.fields["question"]
        assert said(call.fields["context"]) == [f"{workers[0]}-0-1"]  # its own earlier exchange, nobody else's
        assert f"task-0-for-{workers[0]}" in call.fields["context"]
    (aggregator,) = engine.of("aggregator")
    everything = [*(f"{role}-0-1" for role in workers), f"{workers[0]}-0-2", "manager-0-1"]
    assert said(aggregator.fields["reports"]) == everything
    assert aggregator.fields["question"] == QUESTION and "tools" not in aggregator.fields
    assert engine.calls[-1] is aggregator and prediction.answer == "1815 said-by-aggregator-0-1"
    assert prediction.last_tool_result == ""
    assert prediction.reports["n"] == prediction.reports["parse_ok"] == 2 * n + 1  # and a closing message
    kinds = [handoff["kind"] for handoff in prediction.reports["handoffs"]]
    assert kinds == ["delegation", "report"] * n + ["message"]
    check_counts(prediction, engine)


@pytest.mark.parametrize("communication", FORMATS)
def test_agent_as_tool(communication):
    script = TeamScript(communication, delegations=[["tool_caller"], ["tool_caller"]])
    prediction, engine, _ = run("agent_as_tool", script, communication=communication)
    planner, caller = engine.of("planner"), engine.of("tool_caller")
    assert len(planner) == 3 and len(caller) == 2 * L and len(engine.calls) == 3 + 2 * L
    for turn in (0, 1):
        for call in engine.of("tool_caller", round=turn + 1):
            assert f"task-{turn}-for-tool_caller" in call.fields["question"] and "context" not in call.fields
            assert QUESTION not in call.user and set(said(call.user)) <= {f"tool_caller-0-{turn + 1}"}
    assert said(planner[2].fields["trajectory"]) == ["tool_caller-0-1", "tool_caller-0-2"]
    assert "tool value" not in planner[2].user  # processed observations, no raw results
    assert '"lookup"' not in planner[0].fields["tools"] and "ask_tool_caller" in planner[0].fields["tools"]
    assert prediction.answer == "1815 said-by-planner-0-1" and prediction.last_tool_result == ""
    assert prediction.reports["n"] == prediction.reports["parse_ok"] == 4
    check_counts(prediction, engine)


@pytest.mark.parametrize(
    ("name", "calls", "tool_calls"), [("single", L, 1), ("direct", 1, 0), ("chat_agent", L, 1), ("search_r1", L, 1)]
)
def test_one_agent_programs(name, calls, tool_calls):
    prediction, engine, _ = run(name, TeamScript())
    assert (len(engine.calls), prediction.n_tool_calls) == (calls, tool_calls)
    assert ("tools" in engine.calls[0].fields) == bool(tool_calls)
    assert prediction.answer.startswith("1815")
    check_counts(prediction, engine)
