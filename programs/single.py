"""`single`: one agent with tools, the baseline that every team is compared with."""

from __future__ import annotations

from typing import Any

import dspy

from programs.role_graph import RoleGraph
from programs.signatures import acting_signature
from programs.team import Team


class Single(Team):
    """One solver runs the tool loop and answers.

    Message flow: none. Model calls per question: L, the calls of one tool loop (1 to 9, one more when the answer is
    forced).
    """

    name = "single"

    def build(self) -> None:
        self.solver = dspy.Predict(acting_signature("solver", self.prompt("solver")))

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        with self.session(question, tools, answer_format) as session:
            result = session.run_agent("solver")
            session.add(result)
            return session.prediction(result, tool_result=True)

    def role_graph(self) -> RoleGraph:
        return RoleGraph(roles=("solver",), predictors={"solver": ("solver",)}, edges=())
