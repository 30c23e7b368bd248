"""Degenerate output of models: nesting without end, characters that no file holds, the same mark a thousand times."""

from __future__ import annotations

import json
import time

import dspy
import pytest

from programs import build_program
from programs.agent_tool import AgentTool
from programs.answers import strip_think
from programs.communication import parse_handoff
from programs.json_text import MAX_DEPTH, find_json, is_deep, read_json
from programs.neutral import neutralise_markers
from programs.replies import UNPARSED, as_arguments
from tests.support.engines import ScriptedEngine, chat_reply, make_lm, native_reply, say

DEEP = ['{"a":' * 3000, "[" * 3000, '{"a":' * 900 + "1" + "}" * 900, "[" * 900 + "]" * 900]


def look(x: int = 0) -> int:
    """Look."""
    return x


@pytest.mark.parametrize("deep", DEEP)
@pytest.mark.parametrize("place", ["prose", "tool_calls", "args", "args text", "answer"])
@pytest.mark.parametrize("name", ["single", "centralized", "decentralized"])
def test_json_without_end_is_a_malformed_reply_and_the_question_goes_on(deep, place, name):
    first = {
        "prose": deep,
        "tool_calls": chat_reply(thought="t", tool_calls=deep),
        "args": chat_reply(thought="t", tool_calls=f'{{"tool_calls": [{{"name": "look", "args": {deep}}}]}}'),
        "args text": chat_reply(thought="t", tool_calls=[("look", deep)]),
        "answer": f'{{"answer": {deep}}}',
    }[place]
    engine = ScriptedEngine(lambda request: first if len(engine.requests) == 1 else say("42"))
    with dspy.context(lm=make_lm(engine)):
        prediction = build_program(name)(question="q", tools=[look])
    json.dumps(prediction.toDict(), ensure_ascii=False).encode("utf-8")
    assert prediction.answer is not None


def test_native_arguments_without_end_are_an_error_that_the_model_reads():
    nested: dict = {}
    for _ in range(500):
        nested = {"x": nested}
    engine = ScriptedEngine([native_reply(("look", nested)), "42"])
    with dspy.context(lm=make_lm(engine)):
        prediction = build_program("single", tool_calling="native")(question="q", tools=[look])
    call = prediction.trajectory[0]["steps"][0]["calls"][0]
    assert call["kind"] == "arguments" and f"more than {MAX_DEPTH} levels" in call["result"]
    assert prediction.answer == "42"


@pytest.mark.parametrize("deep", DEEP)
def test_a_typed_report_without_end_is_kept_as_text_and_counted(deep):
    handoff = parse_handoff('{"summary": %s}' % deep, "structured_soft", role="worker")  # noqa: UP031
    assert not handoff.parse_ok
    assert len(handoff.body) < 10_000


def test_nesting_of_a_real_size_is_read():
    value = json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert read_json(json.dumps(value)) == value and not is_deep(value)
    assert find_json(f"so: {json.dumps([value])}") is None
    with pytest.raises(ValueError, match="levels deep"):
        read_json(json.dumps([value]))


def test_lone_surrogates_reach_no_record():
    assert as_arguments('"\\ud800"') == {UNPARSED: "?"}
    for form in ("freeform", "semi_structured", "structured_soft"):
        for text in ("\ud800", "[SUMMARY] \ud800", '{"summary": "\\ud800", "\\ud800": 1}'):
            record = parse_handoff(text, form, role="worker").as_dict()
            json.dumps(record, ensure_ascii=False).encode("utf-8")


def test_a_delegation_with_broken_arguments_is_not_passed_on_as_a_question():
    tool = AgentTool.make("ask_worker", "Ask.", lambda question: pytest.fail("the worker was asked"))
    for raw in ('{"question": "who', '["who"]'):
        observation = tool.open("ask_worker", {UNPARSED: raw})
        assert observation.kind == "arguments" and "parsing arguments for ask_worker" in observation.text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>a</think>x<thinking>b</thinking>y", "xy"),
        ("<think>a<thinking>b</thinking>", ""),
        ("<think>a</think>before<think>never closed", "before"),
        ("a</think>b", "b"),
    ],
)
def test_thoughts_are_left_out(text, left):
    assert strip_think(text) == left


@pytest.mark.parametrize("unit", ["<think>", "</think>", "[[ ## ", "[[ ## a ##", "<" + " " * 50, "{", "[ ", "```\n"])
def test_the_same_mark_over_and_over_costs_no_time(unit):
    text, began = unit * 5_000, time.process_time()
    strip_think(text)
    neutralise_markers(text)
    find_json(text)
    assert time.process_time() - began < 2
