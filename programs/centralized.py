"""`centralized`: a manager delegates to workers through agent tools, an aggregator writes the answer."""

from __future__ import annotations

from typing import Any

import dspy

from programs.communication import parse_handoff, render, report_form, report_type, summarise
from programs.delegation import Exchange
from programs.role_graph import RoleGraph, appearance
from programs.signatures import acting_signature, aggregator_signature
from programs.team import Session, Team

_FOUR = ("tool_caller", "checker", "reasoner")
_EIGHT = (*_FOUR, "question_parser", "dependency_mapper", "evidence_filter", "result_auditor")
WORKERS: dict[int, tuple[str, ...]] = {
    2: ("tool_caller",),
    4: _FOUR,
    8: _EIGHT,
    10: (*_EIGHT, "alternative_explorer", "disambiguator"),
}
SKILLS = {
    "tool_caller": "finds values with the tools",
    "checker": "verifies given values with the tools",
    "reasoner": "compares, counts, computes and transforms given values",
    "question_parser": "reads a question closely and names its parts",
    "dependency_mapper": "orders the hops of a question",
    "evidence_filter": "keeps the relevant part of given evidence",
    "result_auditor": "audits a chain of values for errors",
    "alternative_explorer": "looks for another way to a value",
    "disambiguator": "settles which of several readings is meant",
}


class Centralized(Team):
    """Manager -> workers -> manager -> aggregator.

    Message flow: the manager has no tools but its workers; several delegations of one turn run side by side. A worker
    sees only its delegation and its own earlier exchanges in this question, has all tools, and reports back to the
    manager; workers never talk to each other. When the manager stops delegating, the aggregator (not counted in the
    team size) reads the exchange and the manager's closing message and answers.
    Model calls per question: M + sum of L over the delegations + 1, with M the manager's calls (at most 18, 9 at
    r = 2, one more when its report is forced) and L the calls of one tool loop.
    """

    name = "centralized"
    sizes = (2, 4, 8, 10)
    default_size = 4
    hands_off = True

    def build(self) -> None:
        kind = report_type(self.communication)
        manager = acting_signature("manager", self.prompt("manager"), output="report", report_type=kind)
        self.manager = dspy.Predict(manager)
        for role in self.workers:
            signature = acting_signature(role, self.prompt(role), output="report", context=True, report_type=kind)
            setattr(self, role, dspy.Predict(signature))
        self.aggregator = dspy.Predict(aggregator_signature("aggregator", self.prompt("aggregator")))

    @property
    def workers(self) -> tuple[str, ...]:
        """Worker roles, in order."""
        return WORKERS[self.team_size]

    @property
    def manager_turns(self) -> int:
        """Turns the manager has: 18, or 9 in a team of two."""
        return 9 if self.team_size == 2 else 18

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        with self.session(question, tools, answer_format) as session:
            skills = {role: SKILLS[role] for role in self.workers}
            if not session.tools:
                skills = {role: skill.removesuffix(" with the tools") for role, skill in skills.items()}
            exchange = Exchange(session, "manager", skills, remember=True)
            manager = session.run_agent(
                "manager",
                inputs={"question": session.question, "answer_format": self._manager_form(session)},
                tools=exchange.agent_tools(),
                output="report",
                loop=self.loop(max_turns=self.manager_turns, require_call=True, opening_note=""),
            )
            session.add(manager, *exchange.results)
            if manager.final_text:
                closing = manager.report if manager.report is not None else manager.final_text
                exchange.handoffs.append(parse_handoff(closing, self.communication, role="manager", kind="message"))
            final = session.call_stage("aggregator", session.inputs(reports=render(exchange.handoffs)))
            return session.prediction(final, reports=summarise(exchange.handoffs, self.communication))

    def _manager_form(self, session: Session) -> str:
        """What the manager is told to close with: notes in free form may already give the answer."""
        if self.communication == "freeform":
            return session.form.text
        return f"{report_form(self.communication)}\nThe final answer will have this form: {session.form.text}"

    def role_graph(self) -> RoleGraph:
        again = appearance("manager", 2)
        fields = {("manager", role): "question" for role in self.workers}
        fields |= {(role, again): "trajectory" for role in self.workers}
        fields |= {(role, "aggregator"): "reports" for role in (*self.workers, again)}
        roles = ("manager", *self.workers, again, "aggregator")
        return RoleGraph(roles=roles, edges=tuple(fields), edge_field=fields)
