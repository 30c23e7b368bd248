"""The optimizer's model as a judge: the planted truth, spoiled by noise and by the habits that are asked for."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.planted_world.program import row_number
from benchmarks.planted_world.texts import hints, note_in, rules_of
from benchmarks.planted_world.world import World

Bias = Literal["none", "position", "length", "constant"]
SAME = 0.05  # a difference in usefulness that a judge does not see
HABIT = 0.25  # how much a habit is worth to it
_BLOCK = re.compile(r"^### \d+\n", re.MULTILINE)


@dataclass(frozen=True)
class Judge:
    """`noise`: standard deviation of its error on a scale of 0 to 1, `inf` for a judge that says anything at all.
    `bias`: likes what comes first, likes long texts, or never tells a difference.
    """

    world: World
    noise: float = 0.05
    bias: Bias = "none"

    def see(self, value: float, text: str, place: int, rng: random.Random) -> float:
        """What a true value looks like to it."""
        if self.bias == "constant":
            return 0.5
        if math.isinf(self.noise):
            return rng.random()
        value += rng.gauss(0, self.noise) if self.noise else 0.0
        value += HABIT * (self.bias == "position" and place == 0)
        return value + HABIT * min(1.0, len(text) / 200) * (self.bias == "length")

    def rate_output(self, fields: Mapping[str, str], rng: random.Random, output: str, place: int = 0) -> float:
        """How well a role did its part."""
        note, number = note_in(output), row_number(fields["received"])
        true = self.world.competence(number, note) if note and number is not None else 0.0
        return _clip(self.see(true, output, place, rng))

    def rate_outputs(self, fields: Mapping[str, str], rng: random.Random) -> str:
        """One line per output, no two the same."""
        seen = [self.rate_output(fields, rng, text, n) for n, text in enumerate(blocks(fields["outputs"]))]
        order = sorted(range(len(seen)), key=lambda n: (seen[n], -n))
        apart = {n: 0.9 * seen[n] + 0.001 * rank for rank, n in enumerate(order)}
        return "\n".join(f"{apart[n]:.4f}" for n in range(len(seen)))

    def rate_handoff(self, fields: Mapping[str, str], rng: random.Random, reader: str, place: int = 0) -> float:
        """How usable a message is for a reader that works by the instruction `reader`."""
        note = note_in(fields["message"])
        true = self.world.compatibility(note, fields["receiver"], rules_of(reader)) if note else 0.05
        return _clip(self.see(true, reader, place, rng))

    def rate_handoffs(self, fields: Mapping[str, str], rng: random.Random) -> str:
        """One line per instruction."""
        readers = blocks(fields["candidate_instructions"])
        return "\n".join(f"{self.rate_handoff(fields, rng, text, n):.2f}" for n, text in enumerate(readers))

    def compare(self, number: int | None, texts: Sequence[str], rng: random.Random) -> str:
        """`A`, `B` or `tie`: which of two outputs helps the team more."""
        seen = []
        for place, text in enumerate(texts):
            note = note_in(text)
            true = self.world.usefulness(number, note) if note and number is not None else 0.0
            seen.append(self.see(true, text, place, rng))
        if abs(seen[0] - seen[1]) < SAME:
            return "tie"
        return "A" if seen[0] > seen[1] else "B"

    def compare_answers(self, number: int | None, texts: Sequence[str], rng: random.Random) -> str:
        """Which of two answers is right."""
        right = []
        for place, text in enumerate(texts):
            note = note_in(text)
            true = note is not None and number is not None and note.val == self.world.rows[number].gold
            right.append(self.see(float(true), text, place, rng))
        return "tie" if abs(right[0] - right[1]) < SAME else "A" if right[0] > right[1] else "B"

    def blame(self, fields: Mapping[str, str], rng: random.Random) -> str:
        """Hands a hint that it is shown on to the sender that it is about, or to every sender that may know them."""
        senders = re.findall(r"^([\w]+): ", fields["messages"], re.MULTILINE)
        if math.isinf(self.noise) or self.bias == "constant" or not senders:
            return "OK"
        said = dict.fromkeys(hints(f"{fields['outcome']}\n{fields['criticism']}"))
        lines = []
        for role, rule in said:
            if role != fields["your_role"]:
                lines += [f"blame {s}: {role} lacks [R{rule:02d}]" for s in ([role] if role in senders else senders)]
        return "\n".join(dict.fromkeys(lines)) or "OK"

    def choose_examples(self, fields: Mapping[str, str], rng: random.Random) -> str:
        """The best and the worst of the shown outputs, by the rewards shown beside them."""
        rewards = [float((re.search(r"reward (\d\.\d+)", text) or ["", "0"])[1]) for text in blocks(fields["outputs"])]
        if not rewards:
            return "none"
        best, worst = rewards.index(max(rewards)) + 1, rewards.index(min(rewards)) + 1
        return f"good {best}: the best of them\nbad {worst}: the worst of them"


def blocks(text: str) -> list[str]:
    """The numbered blocks of a field."""
    return [part.strip() for part in _BLOCK.split(text) if part.strip()]


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))
