"""Votes of replicated agents: one vote per agent, equal answers merged by the task's vote key."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import dspy

logger = logging.getLogger(__name__)
_saying = threading.Lock()


@dataclass(frozen=True)
class Vote:
    """Outcome of a vote. `winner`: index of the agent whose own answer is submitted, None when nobody answered;
    `key`: the winning vote key; `counts`: votes per key in the order of first appearance; `keys`: what each agent
    voted for, None for an agent that had no vote."""

    winner: int | None
    key: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    keys: tuple[str | None, ...] = ()


def vote(answers: Sequence[str | None], vote_key: Callable[[str], str]) -> Vote:
    """The most frequent key wins, ties go to the key that the earliest agent holds.

    Agents without an answer (None) do not vote; blank answers, and answers whose key is blank, vote only when nobody
    else answered. The winner is the first agent with the winning key, so its answer is submitted as it wrote it.
    """
    keys = [None if answer is None else _key(answer, vote_key) for answer in answers]
    cast = [key for key in keys if key] or [key for key in keys if key is not None]
    counts: dict[str, int] = {}
    for key in cast:
        counts[key] = counts.get(key, 0) + 1
    voted = tuple(key if key in counts else None for key in keys)
    if not counts:
        return Vote(None, keys=voted)
    winner = max(counts, key=counts.__getitem__)  # the first of equals: dicts keep the order of first appearance
    return Vote(keys.index(winner), winner, counts, voted)


def ballot(agents: Sequence[Any], result: Vote) -> list[dict[str, Any]]:
    """A vote as plain data, one entry per agent: `agent` (role, index, round), `answer`, `key`, `won`."""
    return [
        {
            "agent": {"role": agent.role, "index": agent.index, "round": agent.round},
            "answer": None if agent.answer is None else str(agent.answer),
            "key": key,
            "won": index == result.winner,
        }
        for index, (agent, key) in enumerate(zip(agents, result.keys, strict=True))
    ]


def _key(answer: str, vote_key: Callable[[str], str]) -> str:
    if not str(answer).strip():
        return ""
    try:
        return str(vote_key(answer) or "").strip()
    except Exception:  # a form of the user's own must not kill a question over a strange answer
        return str(answer).casefold().strip()


def note_clones(program: str, agents: int) -> None:
    """Say once that voters at temperature 0 are clones of each other: one answer, however many agents."""
    decoding = dspy.settings.get("decoding") or {}
    temperature = decoding.get("temperature", (getattr(dspy.settings.lm, "kwargs", None) or {}).get("temperature"))
    if agents > 1 and temperature is not None and float(temperature) == 0.0:
        with _saying:  # of questions that run side by side, one says it
            _say_clones(program)


@cache
def _say_clones(program: str) -> None:
    logger.warning("%s at temperature 0: its agents are clones, their vote is one answer; raise --temperature", program)
