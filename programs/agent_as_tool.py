"""`agent_as_tool`: the two-level system of the paper Agent-as-Tool (arXiv 2507.01489), without its fine-tuning."""

from __future__ import annotations

from typing import Any, ClassVar

import dspy

from programs.communication import report_type, summarise
from programs.delegation import Exchange
from programs.role_graph import RoleGraph, appearance
from programs.signatures import acting_signature
from programs.team import Team


class AgentAsTool(Team):
    """A planner that reasons and asks, a tool-caller that looks up and reports a clean observation.

    Message flow: the planner sees the question and has one tool, the tool-caller; it asks a sub-question, reads the
    processed observation in place of raw tool results, and goes on. The tool-caller sees nothing but the sub-question,
    makes one or more tool calls and reports. After at most 10 rounds the planner answers. The planner calls no dataset
    tool, so no tool result is scored beside its message.
    Model calls per question: P + sum of L over the delegations, with P the planner's calls (at most 10, one more when
    the answer is forced) and L the calls of one tool loop.
    """

    name = "agent_as_tool"
    sizes = (2,)
    default_size = 2
    hands_off = True
    planner_rounds: ClassVar[int] = 10

    def build(self) -> None:
        kind = report_type(self.communication)
        self.planner = dspy.Predict(acting_signature("planner", self.prompt("planner")))
        caller = acting_signature("tool_caller", self.prompt("tool_caller"), output="report", report_type=kind)
        self.tool_caller = dspy.Predict(caller)

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        with self.session(question, tools, answer_format) as session:
            skill = "looks up and computes with the tools" if session.tools else "answers from what it knows"
            exchange = Exchange(session, "planner", {"tool_caller": skill}, remember=False)
            loop = self.loop(max_turns=self.planner_rounds)
            planner = session.run_agent("planner", tools=exchange.agent_tools(), loop=loop)
            session.add(planner, *exchange.results)
            return session.prediction(planner, reports=summarise(exchange.handoffs, self.communication))

    def role_graph(self) -> RoleGraph:
        again = appearance("planner", 2)
        fields = {("planner", "tool_caller"): "question", ("tool_caller", again): "trajectory"}
        return RoleGraph(("planner", "tool_caller", again), edges=tuple(fields), edge_field=fields)
