"""`direct_search`: one search with the question, then the answer ("Direct IO + web search" of the paper)."""

from __future__ import annotations

import logging
from typing import Any

import dspy

from programs.communication import NOTHING, neutralise
from programs.role_graph import RoleGraph
from programs.signatures import answering_signature
from programs.team import Team
from programs.tool_calls import execute_call
from programs.tools import ToolList

logger = logging.getLogger(__name__)
_QUERY = ("query", "q", "question", "search_query", "text")


class DirectSearch(Team):
    """The program itself searches once, with the question as it stands; the model reads the raw result and answers.

    The search tool is the first one that takes a query, those with "search" in their name before others; when there is
    none, the model answers without a result, and a warning says so once.
    Model calls per question: 1 (2 when the reply could not be read); tool calls: 1, or 0 without a search tool.
    """

    name = "direct_search"

    def build(self) -> None:
        self._warned = False  # here: an attribute that comes later would disturb who looks through the program
        signature = answering_signature(
            "solver",
            self.prompt("solver"),
            context="the result of a search with the question; (none) when there is none",
        )
        self.solver = dspy.Predict(signature)

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        with self.session(question, tools, answer_format) as session:
            found, calls = self._search(session.tools, session.question)
            result = session.call_stage("solver", session.inputs(context=neutralise(found) or NOTHING))
            if calls and not result.masked:
                result.steps.insert(0, {"turn": 0, "thought": "", "calls": calls})
                result.n_tool_calls, result.last_tool_result = len(calls), found
            return session.prediction(result, tool_result=True)

    def _search(self, tools: ToolList, question: str) -> tuple[str, list[dict[str, Any]]]:
        for name in sorted(tools.names, key=lambda name: "search" not in name.lower()):
            tool = tools.find(name)
            args = (tool.args if tool else None) or {}
            if parameter := next((key for key in _QUERY if key in args), None):
                observation = execute_call(tools, name, {parameter: question})
                call = {"name": name, "args": {parameter: question}, "result": observation.text}
                return observation.text, [{**call, "kind": observation.kind}]
        if self.scenario != "direct" and not self._warned:
            self._warned = True
            logger.warning(
                "direct_search needs a tool that takes a query, such as the search of the Wikipedia datasets; without "
                "one, as here, the model answers from what it knows (said once)"
            )
        return "", []

    def role_graph(self) -> RoleGraph:
        return RoleGraph(("solver",))
