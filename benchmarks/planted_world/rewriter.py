"""The optimizer's model as a rewriter: it edits rule sets and knows nothing but the texts that it is shown.

With probability `skill` it applies a hint for the role in question that the shown feedback holds; otherwise it adds
or removes a rule at random. Optimizers therefore differ only in the information that they pass on.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.planted_world.texts import CAP, RULES, hints, instruction, role_in, rules_of, tag, tags_in, untag

Style = Literal["helpful", "worse", "lazy", "garbage", "breaking"]


@dataclass(frozen=True)
class Rewriter:
    """`skill`: how often it follows a hint. `style`: helpful, or a bad model for tests of robustness: always worse,
    unchanged, unreadable, or without the names that an instruction has to keep.
    """

    skill: float = 0.5
    style: Style = "helpful"

    def edit(
        self, rules: Sequence[int], role: str, feedback: str, rng: random.Random, avoid: Collection[int] = ()
    ) -> list[int]:
        """New rules for a role. `avoid`: rules that are not added."""
        if self.style in ("worse", "lazy"):
            return [] if self.style == "worse" else list(rules)
        held = set(rules)
        open_hints = [rule for name, rule in hints(feedback) if name == role and rule not in held | set(avoid)]
        follow = rng.random() < self.skill
        kept = None
        if open_hints and follow:
            kept = rng.choice(open_hints)
            held.add(kept)
        else:
            rule = rng.choice([r for r in range(RULES) if (len(held) > 1 if r in held else r not in avoid)])
            held ^= {rule}
        while len(held) > CAP:
            held.discard(rng.choice(sorted(held - {kept})))
        return sorted(held)

    def rewrite(self, current: str, role: str | None, feedback: str, rng: random.Random) -> str:
        """A new instruction in place of `current`."""
        role = role or role_in(current) or "member"
        text = instruction(role, self.edit(rules_of(current), role, feedback, rng))
        return text.replace("`", "") if self.style == "breaking" else text

    def variants(self, current: str, role: str | None, count: int, rng: random.Random) -> str:
        """Several instructions, separated as asked."""
        return "\n=====\n".join(self.rewrite(current, role, "", rng) for _ in range(count))

    def lessons(self, current: str, role: str, feedback: str, rejected: str, rng: random.Random) -> str:
        """What to change about an instruction, as lessons; a rejected one is not said again."""
        rules = rules_of(current)
        new = self.edit(rules, role, feedback, rng, avoid=set(tags_in(rejected)) - set(rules))
        dropped = [f"- Leave out rule {untag(rule)}" for rule in rules if rule not in new]
        added = [f"- Follow rule {tag(rule)}" for rule in new if rule not in rules]
        return "\n".join([*dropped, *added])
