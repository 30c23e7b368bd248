"""`direct`: the model answers from what it knows ("Direct IO" of the paper)."""

from __future__ import annotations

import logging
from typing import Any

import dspy

from programs.role_graph import RoleGraph
from programs.signatures import answering_signature
from programs.team import Team

logger = logging.getLogger(__name__)


class Direct(Team):
    """One call: question -> reasoning, answer. Tools that are given are not used.

    Model calls per question: 1 (2 when the reply could not be read).
    """

    name = "direct"

    def build(self) -> None:
        if self.scenario == "mandatory":
            logger.warning("direct uses no tools: scenario 'mandatory' changes nothing")
        self.solver = dspy.Predict(answering_signature("solver", self.prompt("solver")))

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        with self.session(question, None, answer_format) as session:
            return session.prediction(session.call_stage("solver", session.inputs()))

    def role_graph(self) -> RoleGraph:
        return RoleGraph(("solver",))
