"""A tiny team with the attributes that compiled files rely on."""

from __future__ import annotations

from typing import Any

import dspy


def _signature(fields: str, role: str) -> type[dspy.Signature]:
    signature = dspy.Signature(fields, f"You are the {role}.")
    return signature.with_updated_fields(next(iter(signature.output_fields)), role=role)


class FakeTeam(dspy.Module):
    """planner -> solver(s) -> writer; `team_size` solvers share one prompt, `checked` adds a role."""

    name = "fake_team"

    def __init__(
        self,
        *,
        team_size: int = 4,
        rounds: int = 1,
        communication: str = "freeform",
        tool_calling: str = "text",
        checked: bool = False,
        writer_fields: str = "plan, answer_format -> answer",
    ) -> None:
        super().__init__()
        self.team_size, self.rounds = team_size, rounds
        self.communication, self.tool_calling = communication, tool_calling
        self.checked, self.writer_fields = checked, writer_fields
        self.decoding: dict[str, Any] | None = {"temperature": 0.2, "top_p": 0.9}
        self.planner = dspy.Predict(_signature("question, tools: list[dspy.Tool] -> plan", "planner"))
        if checked:
            self.checker = dspy.Predict(_signature("plan -> verdict", "checker"))
        self.writer = dspy.Predict(_signature(writer_fields, "writer"))

    def hyperparameters(self) -> dict[str, Any]:
        names = ("team_size", "rounds", "communication", "tool_calling", "checked", "writer_fields")
        return {name: getattr(self, name) for name in names}

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        plan = self.planner(question=question, tools=list(tools or [])).plan
        return self.writer(plan=plan, answer_format=str(answer_format or ""))


class UserModule(dspy.Module):
    """A user's own module without any of our attributes."""

    def __init__(self, hops: int = 2) -> None:
        super().__init__()
        self.hops = hops
        self.answerer = dspy.ChainOfThought("question -> answer")

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        return self.answerer(question=question)
