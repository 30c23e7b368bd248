"""`chat_agent`: a chat agent that may call tools (the paper's CAMEL baseline, with and without search)."""

from __future__ import annotations

from typing import Any

import dspy

from programs.role_graph import RoleGraph
from programs.signatures import acting_signature
from programs.team import Team


class ChatAgent(Team):
    """One assistant with a general prompt runs the tool loop; scenario `direct` is the variant without tools.

    Model calls per question: L, the calls of one tool loop (1 without tools, one more when the answer is forced).
    """

    name = "chat_agent"

    def build(self) -> None:
        self.agent = dspy.Predict(acting_signature("agent", self.prompt("agent")))

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        with self.session(question, tools, answer_format) as session:
            result = session.run_agent("agent")
            session.add(result)
            return session.prediction(result, tool_result=True)

    def role_graph(self) -> RoleGraph:
        return RoleGraph(("agent",))
