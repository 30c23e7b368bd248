"""Delegations of one question: an asking role reaches its workers through agent tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from programs.agent_tool import AgentTool, Delegation, agent_names
from programs.communication import (
    Handoff,
    delegation_args,
    parse_delegation,
    parse_handoff,
    render,
    report_form,
)
from programs.masking import is_active
from programs.team import Session
from programs.tool_loop import LoopResult


class Exchange:
    """The delegations and reports of one question, in the order in which they were made.

    `asker`: the role that delegates; `skills`: worker role -> what it does, as the asker is told; `remember`: a worker
    sees its own earlier exchanges beside its delegation. `handoffs` and `results` (one per delegation) grow in the
    order of the asker's calls, however the workers of a turn were scheduled.
    """

    def __init__(self, session: Session, asker: str, skills: Mapping[str, str], *, remember: bool) -> None:
        self.session = session
        self.asker = asker
        self.skills = dict(skills)
        self.remember = remember
        self.communication: str = session.team.communication
        self.handoffs: list[Handoff] = []
        self.results: list[LoopResult] = []
        self.rounds = dict.fromkeys(self.skills, 0)

    def agent_tools(self) -> list[AgentTool]:
        """One agent tool per worker that may run; a masked worker is not offered."""
        names = agent_names(list(self.skills), self.session.tools.names)
        args = delegation_args(self.communication)
        return [
            AgentTool.make(names[role], f"Ask the {role.replace('_', ' ')}, who {skill}.", Ask(self, role), args)
            for role, skill in self.skills.items()
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

    def __call__(self, question: str, **more: Any) -> Delegation:
        exchange, role = self.exchange, self.role
        exchange.rounds[role] += 1
        round = exchange.rounds[role]
        worker = {"role": role, "index": 0, "round": round}
        asked = parse_delegation(
            {"question": question, **more}, exchange.communication, role=exchange.asker, receiver=worker
        )
        inputs = {"question": asked.body, "answer_format": report_form(exchange.communication)}
        if exchange.remember:
            inputs["context"] = exchange.history(role)

        def run() -> LoopResult:
            return exchange.session.run_agent(role, round=round, inputs=inputs, output="report")

        def finish(result: LoopResult) -> str:
            written = result.report if result.report is not None else result.final_text
            report = parse_handoff(written, exchange.communication, role=role, round=round)
            exchange.handoffs += [asked, report]
            exchange.results.append(result)
            return report.body or f"(no report: {result.stopped or 'nothing was written'})"

        return Delegation(run, finish)
