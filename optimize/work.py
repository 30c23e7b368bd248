"""What a role received and wrote in a rollout, as text for a judge or a rewriter.

A role may be called several times: by several agents that share its prompt, in several rounds, or in the turns of a
tool loop. The calls of one agent in one round are one piece of work; where no agent is known, every call is.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from optimize.clip import MESSAGE, OUTPUT, as_text, clip
from optimize.jsonable import jsonable
from optimize.rows import NodeCall, Row

NOTHING = "(none)"


def written(prediction: Any, limit: int = OUTPUT) -> str:
    """The fields of one output as lines `name: text`."""
    return clip(as_text(jsonable(prediction), limit), limit)


def received(call: NodeCall, limit: int = OUTPUT) -> str:
    """The fields of one input as lines `name: text`."""
    return clip(as_text(jsonable(dict(call.inputs)), limit), limit)


def calls_of(row: Row, role: str) -> list[NodeCall]:
    """The calls of a role that were made (not masked), in call order."""
    return [call for call in row.calls if call.role == role and not call.masked]


def pieces(row: Row, role: str) -> dict[Hashable, list[NodeCall]]:
    """The pieces of work of a role: (agent index, round) -> its calls; a number per call where no agent is known."""
    found: dict[Hashable, list[NodeCall]] = {}
    for number, call in enumerate(calls_of(row, role)):
        agent = call.request.settings.get("agent") if call.request is not None else None
        key: Hashable = (agent.get("index"), agent.get("round")) if isinstance(agent, Mapping) else number
        found.setdefault(key, []).append(call)
    return found


def piece_text(calls: Sequence[NodeCall], limit: int = OUTPUT) -> str:
    """What one agent wrote in its calls: all of it in the order of the calls."""
    return clip("\n".join(written(call.prediction, limit) for call in calls), limit)


def work_text(row: Row, role: str, limit: int = OUTPUT) -> str:
    """What a role wrote in a rollout, `(none)` when it was not called."""
    texts = [piece_text(calls, limit) for calls in pieces(row, role).values()]
    return clip("\n---\n".join(text for text in texts if text), limit) or NOTHING


def last_received(row: Row, role: str, limit: int = MESSAGE) -> str:
    """What a role was given in its last call, which has seen most; `(none)` when it was not called."""
    calls = calls_of(row, role)
    return received(calls[-1], limit) if calls else NOTHING


def blocks(texts: Sequence[str]) -> str:
    """Texts as numbered blocks headed `### 1`, `### 2`, ...; `(none)` for an empty list."""
    return "\n\n".join(f"### {n}\n{text}" for n, text in enumerate(texts, 1)) or NOTHING
