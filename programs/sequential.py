"""`sequential`: a pipeline of stages; every stage reads all earlier ones, the last one answers."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import dspy

from programs.communication import Handoff, handoffs_from, render, report_form, report_type, summarise
from programs.role_graph import RoleGraph
from programs.signatures import acting_signature, aggregator_signature, stage_signature
from programs.team import Session, Team
from programs.tool_loop import LoopResult

STAGES: dict[int, tuple[str, ...]] = {
    2: ("tool_caller", "aggregator"),
    4: ("planner", "tool_caller", "checker", "aggregator"),
    8: (
        *("question_parser", "dependency_mapper", "planner", "tool_caller"),
        *("evidence_filter", "checker", "result_auditor", "aggregator"),
    ),
    10: (
        *("question_parser", "disambiguator", "dependency_mapper", "planner", "tool_caller"),
        *("alternative_explorer", "evidence_filter", "checker", "result_auditor", "aggregator"),
    ),
}
WITH_TOOLS = frozenset({"tool_caller", "checker"})


class Sequential(Team):
    """Stages in a fixed order, one role each: for r = 4 planner -> tool_caller -> checker -> aggregator.

    Message flow: every stage gets the question and the handoffs of all earlier stages, in order; nobody sees a later
    one. Only tool_caller and checker have tools. The aggregator answers; it calls no tool, so no tool result is scored
    beside its message. A masked stage is skipped and is no source of messages.
    Model calls per question: (r - k) + k L, with k the stages that have tools (1 for r = 2, else 2) and L the calls of
    one tool loop; so 1 + L, 2 + 2 L, 6 + 2 L and 8 + 2 L for r = 2, 4, 8, 10.
    """

    name = "sequential"
    sizes = tuple(STAGES)
    default_size = 4
    hands_off = True

    @property
    def stages(self) -> tuple[str, ...]:
        """Stage roles, in order; the last one answers."""
        return STAGES[self.team_size]

    def build(self) -> None:
        kind = report_type(self.communication)
        for role in self.stages[:-1]:
            if role in WITH_TOOLS:
                signature = acting_signature(role, self.prompt(role), output="report", context=True, report_type=kind)
            else:
                signature = stage_signature(role, self.prompt(role), report_type=kind)
            setattr(self, role, dspy.Predict(signature))
        self.aggregator = dspy.Predict(aggregator_signature("aggregator", self.prompt("aggregator")))

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        with self.session(question, tools, answer_format) as session:
            handoffs: list[Handoff] = []
            for role in self.stages[:-1]:
                result = self._stage(session, role, render(handoffs))
                handoffs += handoffs_from(result, self.communication)
            final = session.call_stage("aggregator", session.inputs(reports=render(handoffs)))
            return session.prediction(final, reports=summarise(handoffs, self.communication))

    def _stage(self, session: Session, role: str, context: str) -> LoopResult:
        inputs = {
            "question": session.question,
            "context": context,
            "answer_format": report_form(self.communication),
        }
        if role not in WITH_TOOLS:
            return session.call_stage(role, inputs)
        result = session.run_agent(role, inputs=inputs, output="report")
        session.add(result)
        return result

    def role_graph(self) -> RoleGraph:
        edges = tuple(combinations(self.stages, 2))
        fields = {(i, j): "reports" if j == "aggregator" else "context" for i, j in edges}
        return RoleGraph(self.stages, edges=edges, edge_field=fields)
