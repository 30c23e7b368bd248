"""A scripted team for message-flow tests: every message holds a token that names its author."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dspy

from programs import build_program
from tests.support.flow_engine import Call, FlowEngine, reply

QUESTION = "Which year was the founder of Qarth born?"
FORM = "a bare year"
FORMATS = ("freeform", "semi_structured", "structured_soft")
SIZES = (2, 4, 8, 10)


def lookup(name: str) -> str:
    """Look a name up."""
    return f"tool value for {name}"


def token(call: Call) -> str:
    """What an agent says in a round: unique per role, index and round."""
    return f"said-by-{call.role}-{call.index}-{call.round}"


def written(text: str, communication: str) -> str:
    """A well-formed report in a format."""
    if communication == "semi_structured":
        return f"[STATUS] completed\n[SUMMARY] {text}"
    if communication == "structured_soft":
        return json.dumps({"status": "completed", "summary": text})
    return text


@dataclass
class TeamScript:
    """Replies for every role: tool agents call `lookup` once and finish (L = 2), askers follow `delegations`.

    `delegations`: one list of worker roles per turn of the manager or planner; `answers`: the answer of an agent (None:
    it never answers); `errors`: (role, index, round) -> exception.
    """

    communication: str = "freeform"
    delegations: list[list[str]] = field(default_factory=lambda: [["tool_caller"]])
    answers: Callable[[Call], Any] = lambda call: f"1815 {token(call)}"
    errors: dict[tuple[str, int, int], BaseException] = field(default_factory=dict)
    tool_steps: int = 1

    def __call__(self, call: Call) -> Any:
        if call.key in self.errors:
            return self.errors[call.key]
        if "reasoning" in call.outputs:
            return reply(reasoning="because", answer=self.answers(call))
        if "tool_calls" in call.outputs and not call.forced:
            if "ask_" in call.fields["tools"]:
                turn = call.fields["trajectory"].count("\nthought ") + call.fields["trajectory"].startswith("thought ")
                if turn < len(self.delegations):
                    asked = [(f"ask_{role}", self.delegation(role, turn)) for role in self.delegations[turn]]
                    return reply(thought="delegate", calls=asked)
            elif call.steps < self.tool_steps:
                return reply(thought="look it up", calls=[("lookup", {"name": f"{token(call)}-{call.steps}"})])
        final: dict[str, Any] = {}
        if "report" in call.outputs:
            final["report"] = written(token(call), self.communication)
        if "answer" in call.outputs:
            answer = self.answers(call)
            final["answer"] = "" if answer is None else answer
        return reply(thought=f"thinking {token(call)}", **final)

    def delegation(self, role: str, turn: int) -> dict[str, Any]:
        question = f"task-{turn}-for-{role}"
        if self.communication == "structured_soft":
            return {"question": question, "next": "report the value"}
        return {"question": written(question, self.communication)}


def run(name: str, script: Callable[[Call], Any], *, context: dict[str, Any] | None = None, **hyper: Any) -> Any:
    """`(prediction, engine, program)` of one question through a program."""
    engine = FlowEngine(script)
    program = build_program(name, **hyper)
    with dspy.context(lm=engine.lm, **(context or {})):
        prediction = program(question=QUESTION, tools=[lookup], answer_format=FORM)
    return prediction, engine, program
