"""What the engine obeys in one request: the directives of the instruction, and what the demos show."""

from __future__ import annotations

from dataclasses import dataclass

from programs.offline.directives import recognise
from programs.offline.question import own_question
from programs.offline.request import Seen, sections_of
from programs.offline.words import chance, tokens


@dataclass(frozen=True)
class Traits:
    """Recognised directives, with the request's latent randomness for what stays undecided."""

    found: frozenset[str]
    question: str
    latent: str = ""

    def __contains__(self, key: str) -> bool:
        return key in self.found

    def slips(self, key: str, share: float, *, sampled: bool = True) -> bool:
        """Whether the model slips where directive `key` is missing: for a stated share of questions, by hash."""
        if key in self.found:
            return False
        return chance(key, self.question, self.latent if sampled else "") < share


def read_traits(seen: Seen) -> Traits:
    """Directives in the instruction; a demo that shows tool steps counts as `chain`, bare demo answers as `bare`."""
    found = set(recognise(seen.instruction))
    answers = []
    for _, reply in seen.demos:
        fields = sections_of(reply)
        if '"name"' in fields.get("tool_calls", ""):
            found |= {"chain", "use_tools"}
        answer = fields.get("answer", "").strip()
        if answer and answer.lower() not in ("none", "null"):
            answers.append(answer)
    if any("\nstep 2: " in f"\n{user}" for user, _ in seen.demos):
        found |= {"chain", "use_tools"}
    if answers and all(len(tokens(answer)) <= 6 for answer in answers):
        found.add("bare")
    if "hasty" in found:
        found -= {"chain", "check"}
    if "memory" in found:
        found.discard("use_tools")
    return Traits(frozenset(found), own_question(seen.get("question")), seen.latent)
