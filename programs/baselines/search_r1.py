"""`search_r1`: one model interleaves thinking and raw search results (Search-R1, arXiv 2503.09516, untrained)."""

from __future__ import annotations

import logging
from typing import Any

import dspy

from programs.role_graph import RoleGraph
from programs.signatures import acting_signature
from programs.team import Team

logger = logging.getLogger(__name__)


class SearchR1(Team):
    """think -> search -> raw result -> think ... -> answer, all by one model that was not trained for it.

    Search and page texts reach the model as the tools return them; nobody condenses them, which is what `agent_as_tool`
    does differently.
    Model calls per question: L, the calls of one tool loop (1 to 9, one more when the answer is forced).
    """

    name = "search_r1"

    def build(self) -> None:
        self._warned = False  # here: an attribute that comes later would disturb who looks through the program
        self.agent = dspy.Predict(acting_signature("agent", self.prompt("agent")))

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        with self.session(question, tools, answer_format) as session:
            if not session.tools and self.scenario != "direct" and not self._warned:
                self._warned = True
                logger.warning(
                    "search_r1 searches with the question's tools; without any, as here, the model answers from what "
                    "it knows (said once)"
                )
            result = session.run_agent("agent")
            session.add(result)
            return session.prediction(result, tool_result=True)

    def role_graph(self) -> RoleGraph:
        return RoleGraph(("agent",))
