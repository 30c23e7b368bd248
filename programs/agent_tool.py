"""An agent as a tool: what a planner calls instead of a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dspy

from programs.replies import UNPARSED
from programs.tool_calls import Observation, unparsed_text
from programs.tools import unique_names

_ARGS = {"question": {"type": "string", "description": "a complete question or task that stands on its own"}}


@dataclass
class Delegation:
    """One delegation, opened in call order; calling it runs the agent, `close` books the result in call order."""

    run: Callable[[], Any]
    finish: Callable[[Any], str]

    def __call__(self) -> Any:
        return self.run()

    def close(self, result: Any) -> Observation:
        return Observation(self.finish(result))


@dataclass
class _Ask:
    """The tool as a plain function, for callers that know nothing of delegations."""

    start: Callable[..., Delegation]

    def __call__(self, question: str, **more: Any) -> str:
        delegation = self.start(question, **more)
        return delegation.close(delegation()).text


class AgentTool(dspy.Tool):
    """A `dspy.Tool` whose argument is a sub-question, that is answered by an agent.

    `start(question, **more) -> Delegation` (`more`: the further arguments of `args` that were given) is called in
    the order of the calls, before any agent of the turn runs, so that rounds and histories do not depend on
    timing. Infrastructure errors of the agent go through.
    """

    start: Any = None

    @classmethod
    def make(
        cls, name: str, desc: str, start: Callable[..., Delegation], args: dict[str, dict[str, Any]] | None = None
    ) -> AgentTool:
        """Build the tool without inspecting a function: it is made afresh for every question."""
        return cls.model_construct(
            func=_Ask(start), name=name, desc=desc, args=args or _ARGS, arg_types={"question": str}, arg_desc=None,
            has_kwargs=False, start=start,
        )  # fmt: skip

    def open(self, name: str, args: dict[str, Any]) -> Delegation | Observation:
        """A delegation ready to run, or the observation that says what is wrong with the arguments."""
        raw = args.get(UNPARSED)
        if isinstance(raw, str) and raw.lstrip()[:1] in ("{", "["):
            return Observation(unparsed_text(name, raw), "arguments")
        question = _question(args)
        if question is None:
            text = f'an error occurred when calling {name}: expected one string argument "question"'
            return Observation(text, "arguments")
        more = {key: args[key] for key in self.args if key != "question" and key in args}
        return self.start(question, **more)


def _question(args: dict[str, Any]) -> str | None:
    value = args.get("question")
    if value is None and len(args) == 1:
        value = next(iter(args.values()))
    return value.strip() if isinstance(value, str) and value.strip() else None


def agent_names(roles: list[str], taken: list[str]) -> dict[str, str]:
    """Role -> tool name `ask_<role>`; a user's tool of that name keeps it and ours is renamed."""
    return dict(zip(roles, unique_names([f"ask_{role}" for role in roles], taken), strict=True))
