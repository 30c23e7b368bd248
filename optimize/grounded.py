"""Edge rewards from execution: what does the reader make of a candidate's message?

A judge that reads a message beside an instruction cannot see what follows from it. Here the reader is asked again what
it was asked in a recorded run, with the candidate's message in place of the recorded one and under each of its own
candidates, and its output is judged. No rollout is taken; every pair of candidates takes a probe per context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from optimize import judge
from optimize.candidates import Candidate
from optimize.clip import PROMPT, clip
from optimize.context import SearchContext
from optimize.preferences import Preferences
from optimize.replay import Request
from optimize.rewards import Contexts, Pools
from optimize.rows import NodeCall, Row
from optimize.work import received, written
from programs.role_graph import RoleGraph

LEAST_TEXT = 12  # characters of a message: shorter ones occur by chance

Edge = tuple[str, str]
Cell = tuple[Edge, int, int, int]  # edge, candidate of the sender, candidate of the reader, context


def run_edges(
    context: SearchContext,
    graph: RoleGraph,
    anchor: Candidate,
    pools: Pools,
    calls: Contexts,
    rows: Sequence[Row],
    demos: Preferences,
) -> dict[Edge, list[list[float]]]:
    """g_ij(k, l) as the judged output of j under its candidate l after the message of i under its candidate k.

    Means over the contexts of i in whose run j read the message; an edge without any is left out. An output that
    cannot be read is worth nothing.
    """
    edges = dict.fromkeys((graph.role_of(a), graph.role_of(b)) for a, b in graph.edges)
    work: list[tuple[Cell, NodeCall, NodeCall]] = []  # cell, the sender's call, the reader's call
    for i, j in edges:
        for t, call in enumerate(calls[i]):
            reader = reader_of(call, j, rows)
            if reader is None:
                continue
            for k in range(len(pools[i])):
                readers = [k] if i == j else range(len(pools[j]))
                work += [(((i, j), k, m, t), call, reader) for m in readers]

    def ask(item: tuple[Cell, NodeCall, NodeCall]) -> dict[str, Any] | None:
        ((i, j), k, m, _), call, reader = item
        sender = context.roles.with_text(anchor, i, *pools[i][k])
        message = call.prediction if k == 0 else context.probe(sender, call)
        asked = None if message is None else with_message(reader, call.prediction, message)
        answer = None if asked is None else context.probe(context.roles.with_text(anchor, j, *pools[j][m]), asked)
        if asked is None or answer is None:
            return None
        return {
            "role": j,
            "role_description": clip(context.roles.text(context.baseline, j), PROMPT),
            "received": received(asked),
            "output": written(answer),
            "examples": demos.shown(j),
        }

    questions = context.map(ask, work)
    scores = iter(judge.rate(context, judge.RateOutput, [q for q in questions if q is not None]))
    tables: dict[Edge, list[list[float]]] = {}
    seen: dict[Edge, set[int]] = {}
    for (((i, j), k, m, t), _, _), question in zip(work, questions, strict=True):
        table = tables.setdefault((i, j), [[0.0] * len(pools[j]) for _ in pools[i]])
        table[k][m] += 0.0 if question is None else next(scores)
        seen.setdefault((i, j), set()).add(t)
    return {edge: [[value / len(seen[edge]) for value in line] for line in table] for edge, table in tables.items()}


def reader_of(call: NodeCall, role: str, rows: Sequence[Row]) -> NodeCall | None:
    """The first later call of `role`, in the same run, that was shown a text of `call`'s output; None without one."""
    texts = _messages(call.prediction).values()
    for row in rows:
        at = next((n for n, other in enumerate(row.calls) if other is call), None)
        for later in row.calls[at + 1 :] if at is not None else ():
            shown = [value for value in later.inputs.values() if isinstance(value, str)]
            if later.role == role and later.request is not None and any(t in s for t in texts for s in shown):
                return later
    return None


def with_message(reader: NodeCall, old: Any, new: Any) -> NodeCall:
    """The reader's call as if the sender had written `new` instead of `old`."""
    swaps = {text: str(new.get(name) or "") for name, text in _messages(old).items()}

    def swapped(value: Any) -> Any:
        if isinstance(value, str):
            for text, other in swaps.items():
                value = value.replace(text, other)
        return value

    def swapped_all(fields: Mapping[str, Any]) -> dict[str, Any]:
        return {name: swapped(value) for name, value in fields.items()}

    request = reader.request
    if request is None:
        raise ValueError(f"a masked call of {reader.role} cannot be asked again")
    return replace(
        reader,
        inputs=swapped_all(reader.inputs),
        request=Request(request.predictor, swapped_all(request.kwargs), request.settings),
    )


def _messages(prediction: Any) -> dict[str, str]:
    """The texts of an output that are long enough to be recognised elsewhere, by field."""
    return {n: v for n, v in dict(prediction).items() if isinstance(v, str) and len(v.strip()) >= LEAST_TEXT}
