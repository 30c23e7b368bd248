"""Feedback per role: what the score says, what the role's neighbours saw, whom they blame.

`plain`: the metric's own sentence. `topology`: plus what the role received and sent and what its consumers made of
it, so that credit follows the edges of the team. `blame`: plus one sentence from each consumer of a failed run about
what it got from the role (one judge call per failed run and consumer). Each level contains the one before.
"""

from __future__ import annotations

from typing import Any

from optimize import blame
from optimize.clip import MESSAGE, as_text, clip
from optimize.context import SearchContext
from optimize.rows import Row
from programs.role_graph import RoleGraph

LEVELS = ("plain", "topology", "blame")
SHOWN_CALLS = 2  # of each role: the first and the last


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
        inputs = blame.question(row, consumer, senders)
        reply = context.ask(blame.CriticizeSenders, kind="judge", temperature=blame.TEMPERATURE, **inputs)
        said = blame.sentences(reply, senders)
        lines += [f"Blame from {consumer}: {sentence}" for name, sentence in said if name == role]
    return lines
