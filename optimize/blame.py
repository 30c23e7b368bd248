"""Blame: readers say what was wrong with the messages that they were sent, from the sinks of the team upwards.

MAPRO's L4 (arXiv 2510.07475): a failed run is walked through in reverse topological order; every role with senders
criticises them, and knows by then what its own readers said about it, so that responsibility travels upstream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from optimize.clip import clip
from optimize.context import SearchContext
from optimize.rows import Row
from optimize.work import NOTHING, work_text
from programs.role_graph import RoleGraph

TEMPERATURE = 0.2
SENTENCE, TOTAL = 300, 800  # characters of one sentence, and of everything that is said about a role
TASK, MESSAGE = 800, 600
QUESTION = 700  # of a question in the feedback about the whole team
SHOWN_FAILURES = 2  # there
FAILED = 0.5  # a run with a lower score went wrong
_LINE = re.compile(r"(?im)^\W*blame\s+([\w.@:\[\]-]*[\w\]])\s*:\s*(.+)$")


class CriticizeSenders(dspy.Signature):
    """A team failed at a task. You were one of its members. Judge only the messages that your team-mates sent you.

    Write one line per team-mate whose message held you back, in the form `blame NAME: one sentence that says what was
    wrong or missing in the message and what you would have needed`. When others criticise you for something that a
    team-mate caused, hand the criticism on. Write OK when the messages were fine.
    """

    task: str = dspy.InputField()
    outcome: str = dspy.InputField(desc="what became of the team's answer")
    your_role: str = dspy.InputField()
    criticism: str = dspy.InputField(desc="what was said about your own output")
    messages: str = dspy.InputField(desc="what each team-mate sent you")
    your_output: str = dspy.InputField()
    blame: str = dspy.OutputField(desc="lines `blame NAME: sentence`, or OK")


def question(row: Row, consumer: str, senders: Sequence[str], criticism: Sequence[str] = ()) -> dict[str, Any]:
    """The inputs of one call: a consumer of a failed run about the roles that it reads."""
    return {
        "task": clip(str(row.example.question), TASK),
        "outcome": row.feedback or "the answer was wrong",
        "your_role": consumer,
        "criticism": clip("\n".join(criticism), TOTAL) or NOTHING,
        "messages": "\n".join(f"{sender}: {work_text(row, sender, MESSAGE)}" for sender in senders),
        "your_output": work_text(row, consumer, MESSAGE),
    }


def sentences(reply: Any, senders: Sequence[str]) -> list[tuple[str, str]]:
    """(role, sentence) per line of a reply; lines about anyone but a sender are ignored."""
    found = _LINE.findall(str(reply.blame or "")) if reply is not None else []
    return [(name, clip(text.strip(), SENTENCE)) for name, text in found if name in senders]


def senders_of(graph: RoleGraph, node: str) -> list[str]:
    """Roles whose messages a node reads, later appearances under the role's own name, itself left out."""
    names = dict.fromkeys(graph.role_of(parent) for parent in graph.parents(node))
    return [name for name in names if name != graph.role_of(node)]


def propagate(context: SearchContext, graph: RoleGraph, rows: Sequence[Row]) -> dict[str, list[str]]:
    """What is said about each role after failed runs; runs that went right are not looked at.

    Sinks get the metric's sentence. Then every node with senders, in reverse topological order, makes one call per
    failed run; its sentences go to the senders, tagged with its name, and are part of their own calls.
    """
    failed = [row for row in rows if row.score is not None and row.score < FAILED]
    said: list[dict[str, list[str]]] = [{} for _ in failed]
    for row, about in zip(failed, said, strict=True):
        for sink in graph.sinks:
            about[graph.role_of(sink)] = [f"from the score: {row.feedback or 'the answer was wrong'}"]
    for node in reversed(graph.topological_order()):
        consumer, senders = graph.role_of(node), senders_of(graph, node)
        asked = [n for n, row in enumerate(failed) if senders and consumer in row.outputs]
        inputs = [question(failed[n], consumer, senders, said[n].get(consumer, ())) for n in asked]
        replies = context.ask_many(CriticizeSenders, inputs, kind="judge", temperature=TEMPERATURE)
        for n, reply in zip(asked, replies, strict=True):
            for sender, sentence in sentences(reply, senders):
                said[n].setdefault(sender, []).append(f"from {consumer}: {sentence}")
    return {role: _joined(said, role) for role in graph.base_roles}


def _joined(said: Sequence[Mapping[str, Sequence[str]]], role: str) -> list[str]:
    """Everything said about a role, without repetitions, up to the cap."""
    lines = dict.fromkeys(line for about in said for line in about.get(role, ()))
    kept: list[str] = []
    for line in lines:
        if sum(map(len, kept)) + len(line) > TOTAL:
            break
        kept.append(line)
    return kept


def team_feedback(rows: Sequence[Row], worst: Sequence[Row]) -> str:
    """How the whole team did: successes and failures, and a few failed runs with the metric's sentence."""
    usable = [row for row in rows if row.usable]
    right = sum((row.score or 0.0) >= FAILED for row in usable)
    lines = [f"{right} of {len(usable)} runs succeeded."]
    failed = [row for row in worst if (row.score or 0.0) < FAILED]
    for row in failed[:SHOWN_FAILURES]:
        lines.append(f"- {clip(str(row.example.question), QUESTION)}\n  {row.feedback or 'The answer was wrong.'}")
    return "\n".join(lines)
