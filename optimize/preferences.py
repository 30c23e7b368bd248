"""Preference demonstrations: a few outputs of a role that were good or bad, with reasons, shown to the judge.

MAPRO's D_i (arXiv 2510.07475, Eq. 4 and 5). Three critics choose them: `deterministic` (reward and score thresholds),
`contrast` (the same example, one assignment right and the other wrong), `llm` (the paper's).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from optimize.blame import FAILED
from optimize.clip import clip
from optimize.context import SearchContext
from optimize.rows import Row
from optimize.work import NOTHING, blocks, work_text

KEPT, SHOWN = 6, 3  # of one polarity, and in a prompt
OUTPUT, REASON = 400, 200  # characters
GOOD_REWARD, BAD_REWARD = 0.75, 0.4
_LINE = re.compile(r"(?im)^\W*(good|bad)\s+#?(\d+)\s*[:.)-]\s*(.+)$")


class ChooseExamples(dspy.Signature):
    """A judge rates the outputs of one member of a team and learns from examples. Choose up to three of the numbered
    outputs as examples: some that others should follow and some that they should avoid. Consider how the team did.

    Write one line per example: `good N: reason` or `bad N: reason`.
    """

    role: str = dspy.InputField()
    outputs: str = dspy.InputField(desc="numbered outputs with the reward that each got")
    record: str = dspy.InputField(desc="how the team did with the chosen ones")
    examples: str = dspy.OutputField(desc="lines `good N: reason` or `bad N: reason`")


@dataclass(frozen=True)
class Example:
    """One output that a judge is shown."""

    good: bool
    output: str
    reason: str


class Preferences:
    """The examples of every role, newest last; per polarity the last six are kept."""

    def __init__(self) -> None:
        self._examples: dict[str, list[Example]] = {}

    def add(self, role: str, good: bool, output: str, reason: str) -> None:
        """Remember an output; one that is known already moves to the end."""
        example = Example(good, clip(output, OUTPUT), clip(reason, REASON))
        others = [e for e in self._examples.get(role, []) if e.output != example.output]
        same = [e for e in others if e.good == good][-(KEPT - 1) :]
        self._examples[role] = [e for e in others if e.good != good or e in same] + [example]

    def of(self, role: str) -> list[Example]:
        """All examples of a role, oldest first."""
        return list(self._examples.get(role, []))

    def shown(self, role: str) -> str:
        """Up to three, newest first, both polarities in turn; `(none)` without any."""
        newest = self.of(role)[::-1]
        good, bad = ([e for e in newest if e.good == polarity] for polarity in (True, False))
        mixed = [e for pair in zip(good, bad, strict=False) for e in pair]
        mixed += [*good[len(bad) :], *bad[len(good) :]]
        lines = [f"{'good' if e.good else 'bad'}: {e.output} ({e.reason})" for e in mixed[:SHOWN]]
        return "\n".join(lines) or NOTHING


def deterministic(
    preferences: Preferences, role: str, outputs: Sequence[str], rewards: Sequence[float], chosen: int, success: float
) -> None:
    """The chosen candidate's output is good when at least half of the evaluated rows were right and its reward is
    high; the lowest reward among the others marks a bad one.
    """
    if success >= 0.5 and rewards[chosen] >= GOOD_REWARD:
        preferences.add(role, True, outputs[chosen], f"{success:.0%} of the team's runs with it succeeded")
    others = [k for k in range(len(outputs)) if k != chosen]
    if others:
        worst = min(others, key=lambda k: (rewards[k], k))
        if rewards[worst] <= BAD_REWARD:
            preferences.add(role, False, outputs[worst], f"rated {rewards[worst]:.2f}")


def contrast(preferences: Preferences, roles: Sequence[str], one: Sequence[Row], other: Sequence[Row]) -> None:
    """From two assignments on the same examples: where one was right and the other wrong, what each role wrote."""
    wrong_or_right = {row.id: row for row in other}
    for row in one:
        twin = wrong_or_right.get(row.id)
        if twin is None or row.score is None or twin.score is None:
            continue
        if (row.score < FAILED) == (twin.score < FAILED):
            continue
        right, wrong = (row, twin) if row.score > twin.score else (twin, row)
        for role in roles:
            good, bad = work_text(right, role, OUTPUT), work_text(wrong, role, OUTPUT)
            if good != bad and NOTHING not in (good, bad):
                preferences.add(role, True, good, "the team was right with it")
                preferences.add(role, False, bad, f"the team was wrong with it: {wrong.feedback or 'wrong answer'}")


def warm_start(preferences: Preferences, roles: Sequence[str], rows: Sequence[Row]) -> None:
    """The paper's start: outputs of runs that went right and of runs that went wrong."""
    for row in rows:
        if row.score is not None:
            for role in roles:
                if (text := work_text(row, role, OUTPUT)) != NOTHING:
                    good = row.score >= FAILED
                    preferences.add(role, good, text, row.feedback or f"the team {'succeeded' if good else 'failed'}")


def critic_questions(
    role: str, outputs: Sequence[str], rewards: Sequence[float], rows: Sequence[Row]
) -> Mapping[str, Any]:
    """The inputs of one call of the paper's critic."""
    right = sum(1 for row in rows if row.score is not None and row.score >= FAILED)
    record = [f"{right} of {len(rows)} runs succeeded."]
    record += [f"{clip(str(r.example.question), 200)} -> {r.feedback or r.score}" for r in rows[:SHOWN]]
    rated = [f"(reward {reward:.2f}) {clip(text, OUTPUT)}" for text, reward in zip(outputs, rewards, strict=True)]
    return {"role": role, "outputs": blocks(rated), "record": "\n".join(record)}


def llm_critic(
    context: SearchContext,
    preferences: Preferences,
    pools: Mapping[str, tuple[Sequence[str], Sequence[float]]],
    rows: Sequence[Row],
) -> None:
    """One call per role (L6); `pools`: role -> outputs of its candidates and their rewards."""
    roles = list(pools)
    questions = [critic_questions(role, *pools[role], rows) for role in roles]
    replies = context.ask_many(ChooseExamples, questions, kind="judge", temperature=0.2)
    for role, reply in zip(roles, replies, strict=True):
        found = _LINE.findall(str(reply.examples or "")) if reply is not None else []
        for polarity, number, reason in found[:SHOWN]:
            if 1 <= int(number) <= len(pools[role][0]):
                preferences.add(role, polarity.lower() == "good", pools[role][0][int(number) - 1], reason.strip())
