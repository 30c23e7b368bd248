"""Stand-ins for language models: engines behind a real `dspy.LM(engine=...)`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import dspy
from dspy.lm15 import Message, Response, TextPart, ToolCallPart, Usage


def system_of(request: Any) -> str:
    """The system text of a request."""
    system = request.system
    return system if isinstance(system, str) else "".join(part.text for part in system or ())


def user_of(request: Any) -> str:
    """The last user message of a request."""
    return request.messages[-1].text


def field_of(request: Any, name: str) -> str:
    """The value of one `[[ ## field ## ]]` section of the last user message ('' when absent)."""
    return fields_of(request).get(name, "")


def fields_of(request: Any) -> dict[str, str]:
    """All sections of the last user message; the closing "Respond with" line is cut off."""
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in user_of(request).splitlines():
        if line.startswith("[[ ## ") and line.endswith(" ## ]]"):
            current = sections.setdefault(line[6:-6], [])
        elif line.startswith("Respond with the corresponding output fields"):
            current = []
        else:
            current.append(line)
    return {name: "\n".join(lines).strip() for name, lines in sections.items()}


def chat_reply(**fields: Any) -> str:
    """A text-mode reply; a list under `tool_calls` may hold (name, args) pairs or dicts."""
    if isinstance(fields.get("tool_calls"), list):
        calls = [
            {"name": call[0], "args": call[1]} if isinstance(call, tuple) else call for call in fields["tool_calls"]
        ]
        fields["tool_calls"] = json.dumps({"tool_calls": calls}, ensure_ascii=False)
    body = "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items())
    return f"{body}\n\n[[ ## completed ## ]]"


def act(*calls: tuple[str, dict[str, Any]], thought: str = "next") -> str:
    """A text-mode reply that calls tools."""
    return chat_reply(thought=thought, tool_calls=list(calls))


def say(answer: str, *, field: str = "answer", thought: str = "done") -> str:
    """A text-mode reply with a final answer (or, with `field="report"`, a report)."""
    return chat_reply(thought=thought, tool_calls=[], **{field: answer})


def native_reply(*calls: tuple[str, Any], text: str = "") -> list[Any]:
    """A reply of the provider's function calling: parts of a message (arguments as dict, or raw broken JSON)."""
    parts: list[Any] = [TextPart(text)] if text else []
    for i, (name, args) in enumerate(calls):
        given = args if isinstance(args, dict) else {"partial_json": args}
        parts.append(ToolCallPart(id=f"call{i}", name=name, input=given))
    return parts


def as_response(reply: Any, *, model: str = "stub", finish_reason: str | None = None) -> Response:
    """A `Response` from a text, a list of parts, or a Response as it is."""
    if isinstance(reply, Response):
        return reply
    parts = [TextPart(reply)] if isinstance(reply, str) else list(reply)
    called = any(isinstance(part, ToolCallPart) for part in parts)
    reason = finish_reason or ("tool_call" if called else "stop")
    usage = Usage(input_tokens=10, output_tokens=5, total_tokens=15)
    return Response(id=None, model=model, message=Message.assistant(parts), finish_reason=reason, usage=usage)


class ScriptedEngine:
    """Replies from a function of the request, or one after the other from a list (the last one repeats).

    A reply is a text, a list of parts (`native_reply`), a `Response`, or an exception to raise.
    `requests` keeps every request in the order of arrival.
    """

    supports_function_calling = True

    def __init__(self, replies: Callable[[Any], Any] | list[Any], *, native: bool = True) -> None:
        self.replies = replies
        self.requests: list[Any] = []
        self.supports_function_calling = native
        self._lock = threading.Lock()

    def complete(self, request: Any) -> Response:
        with self._lock:
            position = len(self.requests)
            self.requests.append(request)
        if callable(self.replies):
            reply = self.replies(request)
        else:
            reply = self.replies[min(position, len(self.replies) - 1)]
        if isinstance(reply, BaseException):
            raise reply
        return as_response(reply)

    @property
    def seeds(self) -> list[int | None]:
        """The seed of every request, in the order of arrival."""
        return [request.config.seed for request in self.requests]


class RecordingEngine(ScriptedEngine):
    """A ScriptedEngine that is only asked for what it was sent: it answers every role at once."""

    def __init__(self, answer: str = "42") -> None:
        super().__init__(lambda request: finish_role(request, answer))


def finish_role(request: Any, answer: str = "42") -> Any:
    """A reply that ends any role of any program, in text or native mode."""
    text = user_of(request)
    if request.tools:
        return answer
    if "`[[ ## reasoning ## ]]`" in text:
        return chat_reply(reasoning="from the reports", answer=answer)
    field = "report" if "`[[ ## report ## ]]`" in text else "answer"
    if "`[[ ## tool_calls ## ]]`" in text:
        return say(answer, field=field)
    return chat_reply(thought="t", **{field: answer}) if "Respond with" in text else answer


GARBAGE = (
    "", "   ", "I do not know.", "{", "[[ ## thought ## ]]", "[[ ## tool_calls ## ]]\n{broken",
    "<think>never closed", "null", "[[ ## answer ## ]]\nNone", "\u0000\ud7ff", "TERMINATE",
    '[[ ## tool_calls ## ]]\n{"tool_calls": [{"name": ""}]}', '[[ ## tool_calls ## ]]\n[1, 2, 3]',
    '[[ ## thought ## ]]\nx\n\n[[ ## tool_calls ## ]]\n{"tool_calls": [{"name": "nope", "args": "zzz"}]}',
)  # fmt: skip


class GarbageEngine(ScriptedEngine):
    """Malformed replies in turn."""

    def __init__(self) -> None:
        super().__init__(lambda request: GARBAGE[len(self.requests) % len(GARBAGE)])


def make_lm(engine: Any, **options: Any) -> dspy.LM:
    """A `dspy.LM` over an engine, without cache and retries."""
    return dspy.LM("stub/model", engine=engine, cache=False, num_retries=0, **options)
