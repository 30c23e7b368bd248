"""Replies for `tests.support.llm_server`: recorded calls over HTTP, and the chains of the overhead benchmark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.engines import act, chat_reply, say
from tests.support.llm_server import ChatRequest, Reply

_STEP = re.compile(r"^step \d+: ", re.MULTILINE)


def read_traces(path: str | Path) -> dict[str, dict[str, Any]]:
    """Recorded calls by question."""
    with open(path, encoding="utf-8") as lines:
        return {row["question"].strip(): row for row in map(json.loads, lines)}


class Replay:
    """One recorded call per turn, then the recorded answer, in the mode in which it is asked."""

    def __init__(self, traces: Mapping[str, dict[str, Any]]) -> None:
        self.traces = dict(traces)

    def __call__(self, request: ChatRequest) -> Reply:
        row = self.traces[request.field("question")]
        native = "[[ ## tools ## ]]" not in request.user
        offered = " ".join(tool["name"] for tool in request.tools) if native else request.field("tools")
        done = len(_STEP.findall(request.field("trajectory")))
        if done < len(row["calls"]):
            call = (shown_name(row["calls"], done, offered), row["calls"][done]["arguments"])
            return Reply(calls=[call]) if native else Reply(act(call))
        final = f"<answer>{row['answer']}</answer>"
        return Reply(final if native else say(final))


def shown_name(calls: list[dict[str, Any]], position: int, offered: str) -> str:
    """The k-th call of a name that two tools of the row share goes to the k-th of them."""
    name = calls[position]["name"]
    if f"{name}__0" not in offered:
        return name
    return f"{name}__{[call['name'] for call in calls[:position]].count(name)}"


def chain(request: ChatRequest) -> Reply:
    """Three calls one after the other, then the answer: the same for `single`, ReActV2 and a bare predictor.

    The number of calls so far is read from the request: our trajectory lines, ReActV2's tool results.
    """
    tools = request.body.get("tools")
    messages = request.messages
    text = request.user
    number = next((found[1] for found in map(_QUESTION.search, _contents(messages)) if found), "0")
    if "[[ ## trajectory ## ]]" in text:
        done, submit = len(_STEP.findall(text)), False
    else:
        done = sum(m["role"] == "tool" or "[[ ## tool_call_results ## ]]" in str(m.get("content")) for m in messages)
        submit = tools is not None or "`submit`" in request.system
        if not submit:
            return Reply(chat_reply(answer=f"value {number}"))
    if done < CHAIN:
        call = (f"look_up_relation_{done}", {"entity": f"entity {number}", "relation": "author", "language": "en"})
        return Reply(calls=[call]) if tools else Reply(_text(call, submit))
    if submit:
        call = ("submit", {"answer": f"value {number}"})
        return Reply(calls=[call]) if tools else Reply(_text(call, submit))
    return Reply(f"value {number}" if tools is not None else say(f"value {number}"))


CHAIN = 3
_QUESTION = re.compile(r"question number (\d+)")


def _contents(messages: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    return (str(message.get("content")) for message in messages if message["role"] == "user")


def _text(call: tuple[str, dict[str, Any]], react: bool) -> str:
    if not react:
        return act(call)
    calls = json.dumps({"tool_calls": [{"name": call[0], "args": call[1]}]})
    return chat_reply(next_thought="next", tool_calls=calls)
