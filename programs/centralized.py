"""`centralized`: a manager delegates to workers through agent tools, an aggregator writes the answer."""

from __future__ import annotations

from typing import Any

import dspy

from programs.agent_tool import AgentTool, Delegation, agent_names
from programs.communication import Handoff, parse_handoff, render, report_form, report_type, summarise
from programs.role_graph import RoleGraph, appearance
from programs.signatures import acting_signature, aggregator_signature
from programs.team import Session, Team
from programs.tool_loop import LoopResult

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

    A worker sees only its delegation and its own earlier exchanges in this question, has all tools, and reports
    back; several delegations of one turn run side by side; workers never talk to each other. The aggregator is
    not counted in the team size.
    """

    name = "centralized"
    sizes = (2, 4, 8, 10)
    default_size = 4
    hands_off = True

    def build(self) -> None:
        self.manager = dspy.Predict(acting_signature("manager", self.prompt("manager"), output="report"))
        kind = report_type(self.communication)
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
            exchange = Exchange(session)
            manager = session.run_agent(
                "manager",
                tools=exchange.agent_tools(),
                output="report",
                loop=self.loop(max_turns=self.manager_turns, require_call=True, opening_note=""),
            )
            session.add(manager, *exchange.results)
            notes = parse_handoff(manager.final_text, "freeform", role="manager", kind="message")
            written = [*exchange.handoffs, *([notes] if manager.final_text else [])]
            final = session.call_stage("aggregator", session.inputs(reports=render(written)))
            return session.prediction(final, reports=summarise(exchange.handoffs, self.communication))

    def role_graph(self) -> RoleGraph:
        again = appearance("manager", 2)
        edges = [("manager", role) for role in self.workers]
        edges += [(role, again) for role in self.workers]
        edges += [*((role, "aggregator") for role in self.workers), (again, "aggregator")]
        fields = {edge: _FIELD.get(edge[1], "question") for edge in edges} | {
            (role, again): "trajectory" for role in self.workers
        }
        roles = ("manager", *self.workers, again, "aggregator")
        return RoleGraph(roles=roles, edges=tuple(edges), edge_field=fields)


_FIELD = {"aggregator": "reports"}


class Exchange:
    """The delegations and reports of one question, in the order in which they were made."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.team: Centralized = session.team
        self.handoffs: list[Handoff] = []
        self.results: list[LoopResult] = []
        self.rounds = dict.fromkeys(self.team.workers, 0)

    def agent_tools(self) -> list[AgentTool]:
        """One agent tool per worker that may run; a masked worker is not offered."""
        from programs.masking import is_active

        names = agent_names(list(self.team.workers), self.session.tools.names)
        return [
            AgentTool.make(names[role], f"Ask the {role.replace('_', ' ')}, who {SKILLS[role]}.", Ask(self, role))
            for role in self.team.workers
            if is_active(role)
        ]

    def history(self, role: str) -> str:
        """A worker's own earlier exchanges of this question."""
        return render([h for h in self.handoffs if role in (h.sender["role"], (h.receiver or {}).get("role"))])


class Ask:
    """One worker behind its agent tool: `Ask(exchange, role)(question)` opens a delegation."""

    def __init__(self, exchange: Exchange, role: str) -> None:
        self.exchange = exchange
        self.role = role

    def __call__(self, question: str) -> Delegation:
        exchange, role, team = self.exchange, self.role, self.exchange.team
        exchange.rounds[role] += 1
        round = exchange.rounds[role]
        receiver = {"role": role, "index": 0, "round": round}
        delegation = parse_handoff(question, "freeform", role="manager", kind="delegation", receiver=receiver)
        inputs = {
            "question": delegation.body,
            "context": exchange.history(role),
            "answer_format": report_form(team.communication),
        }

        def run() -> LoopResult:
            return exchange.session.run_agent(role, round=round, inputs=inputs, output="report")

        def finish(result: LoopResult) -> str:
            written = result.report if result.report is not None else result.final_text
            report = parse_handoff(written, team.communication, role=role, round=round)
            exchange.handoffs += [delegation, report]
            exchange.results.append(result)
            return report.body or f"(no report: {result.stopped or 'nothing was written'})"

        return Delegation(run, finish)
