"""`decentralized`: peers that debate in rounds, and a vote over the last one."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import dspy

from programs.communication import Handoff, parse_handoff, render, report_form, report_type, summarise
from programs.parallel import run_side_by_side
from programs.role_graph import RoleGraph, appearance
from programs.signatures import acting_signature
from programs.team import Session, Team
from programs.tool_loop import LoopResult
from programs.voting import ballot, note_clones, vote


class Decentralized(Team):
    """r peers with one shared prompt answer alone, then revise their answers in the light of each other's.

    Message flow: round 1: every peer alone. Rounds 2 to R: every peer gets the question, its own and all other peers'
    final messages of the round before (under names that are the same for every receiver), keeps or revises its answer,
    and may call tools. The peers of a round work side by side and see nothing of their own round. The last round is
    voted on as in `independent`; the winner's own final message and last tool result are the program's. When the
    question's budget is used up between two rounds, the last complete round is voted on.
    Model calls per question: r R L, with L the calls of one tool loop.
    """

    name = "decentralized"
    sizes = None
    default_size = 4
    default_rounds = 2
    hands_off = True
    default_decoding = {"temperature": 0.2, "top_p": 0.9}  # noqa: RUF012

    def build(self) -> None:
        form = "" if self.communication == "freeform" else report_form(self.communication)
        kind = report_type(self.communication)
        signature = acting_signature(
            "debater", self.prompt("debater"), context=True, report_type=kind, message_form=form
        )
        self.debater = dspy.Predict(signature)

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        with self.session(question, tools, answer_format) as session:
            note_clones(self.name, self.team_size)
            handoffs: list[Handoff] = []
            peers: list[LoopResult] = []
            budget = dspy.settings.get("question_budget")
            for round in self._rounds():
                if peers and (refusal := budget.refusal()):  # every peer has answered: the debate ends here
                    for peer in peers:
                        peer.stopped = peer.stopped or refusal
                    break
                messages = [self._message(peer) for peer in peers if peer.n_lm_calls]
                handoffs += messages
                peers = run_side_by_side(
                    [partial(self._peer, session, index, round, messages) for index in range(self.team_size)]
                )
                session.add(*peers)
            result = vote([peer.answer for peer in peers], session.form.vote_key)
            return session.prediction(
                None if result.winner is None else peers[result.winner],
                reports=summarise(handoffs, self.communication),
                tool_result=True,
                votes=ballot(peers, result),
            )

    def _peer(self, session: Session, index: int, round: int, messages: list[Handoff]) -> LoopResult:
        inputs = session.inputs(context=render(messages, own=("debater", index)))
        if self.tool_calling == "native" and self.communication != "freeform":
            # A native reply has no fields: message and answer share the final text.
            inputs["answer_format"] = (
                f"first a message to the others: {report_form(self.communication)}\n\n"
                f"Then, last, the answer: {session.form.text}\n"
                "If that does not say how to mark the answer, write it as a last line `Answer: ...`."
            )
        return session.run_agent("debater", index=index, round=round, inputs=inputs)

    def _message(self, peer: LoopResult) -> Handoff:
        """What a peer said at the end of its round: its report if it wrote one, else its reasoning and its answer."""
        written: Any = peer.report
        if not written or getattr(written, "is_empty", False):
            thought = peer.steps[-1].get("thought", "") if peer.steps and self.communication == "freeform" else ""
            written = "\n\n".join(part for part in (thought, peer.final_text) if part)
        return parse_handoff(
            written, self.communication, role=peer.role, index=peer.index, round=peer.round, kind="message"
        )

    def _rounds(self) -> range:
        return range(1, (self.rounds or 1) + 1)

    def role_graph(self) -> RoleGraph:
        nodes = [appearance("debater", round) for round in self._rounds()]
        edges = tuple(pairwise(nodes))
        counts = dict.fromkeys(nodes, self.team_size)
        return RoleGraph(tuple(nodes), edges=edges, counts=counts, edge_field=dict.fromkeys(edges, "context"))
