"""The texts of the world: instructions with rule tags, notes of members, and sentences that name a missing rule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from benchmarks.planted_world.topology import role_of

RULES = 10  # that a role may have
CAP = 3  # rules that a model follows at a time; else an instruction with all of them would be the best

_TAG = re.compile(r"\[(no )?R(\d\d)\]")
_HINT = re.compile(r"(\w+) lacks \[R(\d\d)\]")
_ROLE = re.compile(r"You are `(\w+)`")
_NOTE = re.compile(r"by=[\w:]+;ok=.;read=\d;fmt=\w;val=\d+(?:;style=[\w.]+)?")


@lru_cache(maxsize=65536)
def rules_of(instruction: str) -> tuple[int, ...]:
    """The rules that a model follows: the tags in order, `[no R07]` takes one back, the first three count."""
    held: dict[int, None] = {}
    for no, number in _TAG.findall(instruction):
        if no:
            held.pop(int(number), None)
        else:
            held.setdefault(int(number))
    return tuple(held)[:CAP]


def instruction(role: str, rules: Iterable[int]) -> str:
    """An instruction with these rules; the same rules give the same text."""
    tags = " ".join(tag(rule) for rule in sorted(rules)) or "none yet"
    return f"You are `{role}`, a member of a team. Do your part of the task.\nRules: {tags}"


def tag(rule: int) -> str:
    return f"[R{rule:02d}]"


def untag(rule: int) -> str:
    return f"[no R{rule:02d}]"


def tags_in(text: str) -> list[int]:
    """The rules that a text tells to follow, in order."""
    return [int(number) for no, number in _TAG.findall(text) if not no]


def role_in(text: str) -> str | None:
    """The role that an instruction is for."""
    found = _ROLE.search(text)
    return found[1] if found else None


def hint(role: str, rule: int) -> str:
    """What the score may say about a failed run."""
    return f"{role} lacks {tag(rule)}"


def hints(text: str) -> list[tuple[str, int]]:
    """(role, rule) for every hint in a text, in order."""
    return [(role, int(rule)) for role, rule in _HINT.findall(text)]


@dataclass(frozen=True)
class Note:
    """What a member writes.

    `ok`: 1 its own part is done, 0 a rule is lacking, - a harmful rule spoiled it, u it cannot serve this row.
    `read`: whether it could read what it was sent. `fmt`: A or B, the form in which it hands on. `val`: the number on
    which the team works. `style`: what else a rule may have added.
    """

    by: str
    ok: str
    read: bool
    fmt: str
    val: int
    style: str = ""

    @property
    def text(self) -> str:
        style = f";style={self.style}" if self.style else ""
        return f"by={self.by};ok={self.ok};read={int(self.read)};fmt={self.fmt};val={self.val}{style}"

    @property
    def role(self) -> str:
        return role_of(self.by)


def note_in(text: str) -> Note | None:
    """The first note in a text."""
    found = _NOTE.search(text)
    return _parse(found[0]) if found else None


def notes_in(text: str) -> list[Note]:
    """All notes in a text, in order."""
    return [_parse(found) for found in _NOTE.findall(text)]


@lru_cache(maxsize=65536)
def _parse(text: str) -> Note:
    fields = dict(part.split("=", 1) for part in text.split(";"))
    return Note(
        fields["by"],
        fields["ok"],
        fields["read"] == "1",
        fields["fmt"],
        int(fields["val"]),
        fields.get("style", ""),
    )


def messages_text(notes: Sequence[tuple[str, str]]) -> str:
    """(sender, note text) pairs as a reader is shown them; a silent sender leaves nothing."""
    return "\n".join(f"{sender}: {text}" for sender, text in notes if text) or "(no messages)"
