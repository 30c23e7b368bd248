"""The contract guard: which rewritten instructions are taken at all."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_LENGTH = 2000
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][\w.]*\}|`[^`\n]{1,80}`|</?[A-Za-z_][\w-]*>|\[\[ ## \w+ ## \]\]|```")


def contract_of(seed: str) -> tuple[str, ...]:
    """What a rewrite of `seed` must keep: placeholders, back-ticked names, tags and fences."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(seed)))


def problem_with(text: str | None, seed: str, required: Iterable[str] | None = None) -> str | None:
    """Why `text` cannot replace an instruction, or None when it can.

    It must not be empty, at most 4 x max(2000, length of the seed) characters long, and keep the contract of `seed`.
    Most of a program's contract is in signature fields, which no rewrite touches, so there is no minimum length.
    """
    if text is None or not text.strip():
        return "empty"
    if len(text) > 4 * max(MAX_LENGTH, len(seed)):
        return f"longer than {4 * max(MAX_LENGTH, len(seed))} characters"
    lost = [part for part in (contract_of(seed) if required is None else required) if part not in text]
    return f"lost {', '.join(lost)}" if lost else None
