"""`independent`: agents that do not see each other, and a vote."""

from __future__ import annotations

from functools import partial
from typing import Any

import dspy

from programs.parallel import run_side_by_side
from programs.role_graph import RoleGraph
from programs.signatures import acting_signature
from programs.team import Team
from programs.voting import ballot, note_clones, vote


class Independent(Team):
    """r solvers with one shared prompt work side by side; the most frequent answer wins.

    Message flow: none. Every agent sees the question, the answer form and the tools, and nothing of the others; they
    differ by the seed of their calls. Votes: the answer form's `vote_key`, ties to the earliest agent; the winner's own
    final message and last tool result are the program's.
    Model calls per question: r L, with L the calls of one tool loop (1 to 9, one more when the answer is forced).
    """

    name = "independent"
    sizes = None
    default_size = 4
    default_decoding = {"temperature": 0.2, "top_p": 0.9}  # noqa: RUF012

    def build(self) -> None:
        self.solver = dspy.Predict(acting_signature("solver", self.prompt("solver")))

    def forward(self, question: str, tools: Any = None, answer_format: Any = None) -> dspy.Prediction:
        with self.session(question, tools, answer_format) as session:
            note_clones(self.name, self.team_size)
            agents = run_side_by_side([partial(session.run_agent, "solver", index=i) for i in range(self.team_size)])
            session.add(*agents)
            result = vote([agent.answer for agent in agents], session.form.vote_key)
            winner = None if result.winner is None else agents[result.winner]
            return session.prediction(winner, tool_result=True, votes=ballot(agents, result))

    def role_graph(self) -> RoleGraph:
        return RoleGraph(("solver",), counts={"solver": self.team_size})
