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


CHAIN = 3  # tool calls of one agent
_QUESTION = re.compile(r"question number (\d+)")
_ASKS_FOR = re.compile(r"`\[\[ ## (\w+) ## \]\]`")
_AGENT_TOOL = re.compile(r'"name": "(ask_\w+)"')


def chain(request: ChatRequest) -> Reply:
    """Every tool agent makes three calls one after the other, then says the value of its question.

    The same work for our programs (a manager or planner asks its first agent once), for ReActV2 and for a bare
    predictor. How far an agent is, is read from the request: our trajectory lines, ReActV2's tool results.
    """
    user = request.user
    number = next((found[1] for found in map(_QUESTION.search, _user_texts(request)) if found), "0")
    value = f"value {number}"
    call = f"entity {number}"
    if "[[ ## trajectory ## ]]" not in user:
        if "`submit`" in request.system:
            return _react(request, call, value)
        closing = user.rpartition("Respond with the corresponding output fields")[2]
        return Reply(chat_reply(**dict.fromkeys(_ASKS_FOR.findall(closing)[:-1], value)))
    native = "[[ ## tools ## ]]" not in user
    done = len(_STEP.findall(request.field("trajectory")))
    asks = _AGENT_TOOL.search(json.dumps(request.tools) if native else request.field("tools"))
    if done < (1 if asks else CHAIN):
        made = (asks[1], {"question": f"question number {number}"}) if asks else _look_up(done, call)
        return Reply(calls=[made]) if native else Reply(act(made))
    if native:
        return Reply(value)
    return Reply(say(value, field="report" if "`[[ ## report ## ]]`" in user else "answer"))


def _react(request: ChatRequest, entity: str, value: str) -> Reply:
    results = (
        m["role"] == "tool" or "[[ ## tool_call_results ## ]]" in str(m.get("content")) for m in request.messages
    )
    done = sum(results)
    call = _look_up(done, entity) if done < CHAIN else ("submit", {"answer": value})
    if request.tools:
        return Reply(calls=[call])
    calls = json.dumps({"tool_calls": [{"name": call[0], "args": call[1]}]})
    return Reply(chat_reply(next_thought="next", tool_calls=calls))


def _look_up(position: int, entity: str) -> tuple[str, dict[str, Any]]:
    return f"look_up_relation_{position}", {"entity": entity, "relation": "author", "language": "en"}


def _user_texts(request: ChatRequest) -> Iterable[str]:
    return (str(message.get("content")) for message in request.messages if message["role"] == "user")
