"""Whatever a model writes, reading it gives fields or a parse error, and the loop ends with a record."""

from __future__ import annotations

import json

import dspy
from dspy.utils.exceptions import AdapterParseError
from hypothesis import given, settings
from hypothesis import strategies as st

from programs import build_program
from programs.adapter import text_adapter
from programs.native_adapter import native_adapter
from programs.report import Report
from programs.signatures import acting_signature
from tests.support.engines import ScriptedEngine, make_lm

PIECES = st.sampled_from(
    [
        "[[ ## thought ## ]]", "[[ ## tool_calls ## ]]", "[[ ## answer ## ]]", "[[ ## report ## ]]", "[[ ##", "## ]]",
        "\n", '{"tool_calls": [', '{"name": "f", "args": {', '"x": 1', "}", "]", "None", "<think>", "</think>",
        "```json", "```",
        '"x": "\\ud800"', "<tool_call>", "</tool_call>", "<answer>",
        "Answer: ", '"name"', "null", "\ud800", "\u0000", "é", "7",
    ]
)  # fmt: skip
REPLIES = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=14).map("".join)
SIGNATURES = [
    acting_signature("solver", "x"),
    acting_signature("worker", "x", output="report"),
    acting_signature("worker", "x", output="report", report_type=Report),
]


@settings(max_examples=300, deadline=None)
@given(REPLIES)
def test_reading_gives_all_fields_or_a_parse_error(reply):
    for adapter in (text_adapter(), native_adapter()):
        for signature in SIGNATURES:
            try:
                fields = adapter.parse(signature, reply)
            except AdapterParseError:
                continue
            assert list(fields) == list(signature.output_fields)


@settings(max_examples=40, deadline=None)
@given(st.lists(REPLIES, min_size=1, max_size=6), st.sampled_from(["text", "native"]))
def test_no_sequence_of_replies_breaks_a_program(replies, mode):
    def f(x: int = 0) -> int:
        """F."""
        return x

    engine = ScriptedEngine(replies)
    with dspy.context(lm=make_lm(engine)):
        prediction = build_program("single", tool_calling=mode)(question="q", tools=[f])
    assert len(engine.requests) <= 10
    json.dumps(prediction.toDict(), ensure_ascii=False).encode("utf-8")
