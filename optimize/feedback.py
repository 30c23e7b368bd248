"""Feedback per role: what the score says, what the role's neighbours saw, whom they blame.

`plain`: the metric's own sentence. `topology`: plus what the role received and sent and what its consumers made of
it, so that credit follows the edges of the team. `blame`: plus one sentence from each consumer of a failed run about
what it got from the role (one judge call per failed run and consumer). Each level contains the one before.
"""

from __future__ import annotations

import re
from typing import Any

import dspy

from optimize.clip import MESSAGE, TASK, as_text, clip
from optimize.context import SearchContext
from optimize.rows import Row
from programs.role_graph import RoleGraph

LEVELS = ("plain", "topology", "blame")
SHOWN_CALLS = 2  # of each role: the first and the last
_BLAME_LINE = re.compile(r"(?im)^\W*blame\s+([\w.@\[\]-]+)\s*:\s*(.+)$")


class CriticizeSenders(dspy.Signature):
    """A team failed at a task. You were one of its members. Judge only the messages that your team-mates sent you.

    Write one line per team-mate whose message held you back, in the form `blame NAME: one sentence that says what was
    wrong or missing in the message and what you would have needed`. Write OK when the messages were fine.
    """

    task: str = dspy.InputField()
    outcome: str = dspy.InputField(desc="what became of the team's answer")
    your_role: str = dspy.InputField()
    messages: str = dspy.InputField(desc="what each team-mate sent you")
    your_output: str = dspy.InputField()
    blame: str = dspy.OutputField(desc="lines `blame NAME: sentence`, or OK")


def feedback_for(context: SearchContext, row: Row, role: str) -> str:
    """The feedback of one rollout for one role at the context's level."""
    outcome = row.feedback or f"This run got a score of {row.score:g}."
    if context.feedback == "plain":
        return outcome
    parts = [f"Outcome for the whole team: {outcome}", *_neighbourhood(context, row, role)]
    if context.feedback == "blame":
        parts += _blame(context, row, role)
    return "\n".join(parts)


def _neighbourhood(context: SearchContext, row: Row, role: str) -> list[str]:
    graph = context.graph()
    inputs, outputs = row.inputs, row.outputs
    lines = [
        f"What {role} received: {_shown(inputs.get(role, []))}",
        f"What {role} sent: {_shown(outputs.get(role, []))}",
    ]
    for consumer in _neighbours(graph, role, "children"):
        lines.append(f"{consumer} read it and wrote: {_shown(outputs.get(consumer, []))}")
    return lines


def _neighbours(graph: RoleGraph, role: str, side: str) -> list[str]:
    """Roles next to any appearance of `role`, each named once."""
    found = [graph.role_of(other) for node in graph.appearances(role) for other in getattr(graph, side)(node)]
    return [name for name in dict.fromkeys(found) if name != role]


def _shown(calls: list[dict[str, Any]]) -> str:
    if not calls:
        return "(nothing)"
    chosen = calls if len(calls) <= SHOWN_CALLS else [calls[0], calls[-1]]
    return clip(" | ".join(as_text(call, MESSAGE) for call in chosen), 2 * MESSAGE)


def _blame(context: SearchContext, row: Row, role: str) -> list[str]:
    """Sentences of the role's consumers about it, from a failed run; nothing from a right one."""
    if row.score is None or row.score >= 1:
        return []
    graph = context.graph()
    lines = []
    for consumer in _neighbours(graph, role, "children"):
        senders = _neighbours(graph, consumer, "parents")
        if row.outputs.get(consumer) is None:
            continue
        reply = context.ask(
            CriticizeSenders,
            kind="judge",
            temperature=0.2,
            task=clip(str(row.example.question), TASK),
            outcome=row.feedback or "the answer was wrong",
            your_role=consumer,
            messages="\n".join(f"{sender}: {_shown(row.outputs.get(sender, []))}" for sender in senders),
            your_output=_shown(row.outputs[consumer]),
        )
        for name, sentence in _BLAME_LINE.findall(reply.blame or "" if reply is not None else ""):
            if name == role:
                lines.append(f"Blame from {consumer}: {clip(sentence.strip(), 300)}")
    return lines
