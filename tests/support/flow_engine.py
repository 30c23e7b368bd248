"""A recording model for message-flow tests: who was asked what, in which order, and scripted replies per agent."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.lm15 import Message, Response, TextPart, Usage

_SECTION = re.compile(r"^\[\[ ## (\w+) ## \]\]\n?", re.MULTILINE)


@dataclass(frozen=True)
class Call:
    """One request as the engine saw it; `agent` comes from the context that programs set around every call."""

    agent: dict[str, Any]
    system: str
    user: str
    fields: dict[str, str]
    config: Any = None
    demos: str = ""

    @property
    def role(self) -> str:
        return self.agent.get("role", "")

    @property
    def index(self) -> int:
        return self.agent.get("index", 0)

    @property
    def round(self) -> int:
        return self.agent.get("round", 1)

    @property
    def key(self) -> tuple[str, int, int]:
        return (self.role, self.index, self.round)

    @property
    def outputs(self) -> list[str]:
        """The output fields that the request asks for, in order."""
        asked = self.user.split("Respond with", 1)[-1] if "Respond with" in self.user else ""
        return [name for name in re.findall(r"\[\[ ## (\w+) ## \]\]", asked) if name != "completed"]

    @property
    def steps(self) -> int:
        """Tool calls that this agent's trajectory already shows."""
        return len(re.findall(r"^step \d+:", self.fields.get("trajectory", ""), re.MULTILINE))

    @property
    def forced(self) -> bool:
        return "note: final call:" in self.fields.get("trajectory", "")


def sections(text: str) -> dict[str, str]:
    """Input fields of a text-mode request."""
    text = text.split("Respond with the corresponding output fields", 1)[0]
    parts = _SECTION.split(text)
    return {name: value.strip() for name, value in zip(parts[1::2], parts[2::2], strict=True)}


def reply(**values: Any) -> str:
    """A text-mode reply; `calls=[(name, args), ...]` becomes the `tool_calls` field."""
    if "calls" in values:
        calls = [{"name": name, "args": args} for name, args in values.pop("calls")]
        values["tool_calls"] = {"tool_calls": calls}
    values.setdefault("thought", "ok")
    text = "".join(
        f"[[ ## {name} ## ]]\n{value if isinstance(value, str) else json.dumps(value)}\n\n"
        for name, value in values.items()
    )
    return text + "[[ ## completed ## ]]"


@dataclass
class FlowEngine:
    """`script`: a function from `Call` to a reply (text, or an exception to raise), or a list of replies in order."""

    script: Any
    delay: float = 0.0
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def complete(self, request: Any) -> Response:
        system = request.system if isinstance(request.system, str) else "".join(p.text for p in request.system or [])
        user = request.messages[-1].text
        demos = "\n".join(message.text for message in request.messages[:-1])
        call = Call(dict(dspy.settings.get("agent") or {}), system, user, sections(user), request.config, demos)
        with self._lock:
            position = len(self.calls)
            self.calls.append(call)
        if self.delay:
            time.sleep(self.delay)
        answer = self.script(call) if callable(self.script) else self.script[min(position, len(self.script) - 1)]
        if isinstance(answer, BaseException):
            raise answer
        return Response(
            id=None,
            model="flow",
            message=Message.assistant([TextPart(answer)]),
            finish_reason="stop",
            usage=Usage(input_tokens=10, output_tokens=5, total_tokens=15),
        )

    def __deepcopy__(self, memo: dict) -> FlowEngine:
        return self  # one recorder, however often the model is copied

    @property
    def lm(self) -> dspy.LM:
        return dspy.LM("fake/flow", engine=self, cache=False, num_retries=0)

    def of(self, role: str, index: int | None = None, round: int | None = None) -> list[Call]:
        """Calls of a role (of one agent, of one round) in the order in which that agent made them."""
        return [
            call
            for call in self.calls
            if call.role == role and index in (None, call.index) and round in (None, call.round)
        ]

    @property
    def roles(self) -> list[str]:
        return [call.role for call in self.calls]
