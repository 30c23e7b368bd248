"""The trajectory as text: one deterministic rendering, kept within a budget by dropping its middle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from programs.neutral import indent_continuation, neutralise_markers

NOTHING_YET = "(no steps yet)"
THOUGHT_CHARS = 1500


def render_step(step: dict[str, Any]) -> str:
    """The lines of one step: `thought N: ...`, one `step N: name(args) -> result` per call, `note: ...`.

    Text that came from tools or models is neutralised and its continuation lines are indented: a line that
    starts with `step `, `thought ` or `note: ` in column 0 is always the loop's own.
    """
    lines = []
    turn = step["turn"]
    thought = " ".join(str(step.get("thought") or "").split())
    if thought:
        lines.append(f"thought {turn}: {neutralise_markers(thought[:THOUGHT_CHARS])}")
    for call in step.get("calls", ()):
        args = json.dumps(call["args"], ensure_ascii=False, default=str)
        result = indent_continuation(neutralise_markers(call["result"]))
        lines.append(f"step {turn}: {neutralise_markers(call['name'])}({neutralise_markers(args)}) -> {result}")
    lines.extend(f"note: {indent_continuation(note)}" for note in step.get("notes", ()))
    return "\n".join(lines)


def fit_blocks(blocks: Sequence[str], limit: int, closing: str = "") -> str:
    """Join step blocks within `limit` characters: the first step and the latest ones stay, the middle goes.

    `closing` (a last note) always stays. A block that alone is over the limit is cut in its own middle.
    """
    blocks = [block for block in blocks if block]
    tail = [closing] if closing else []
    if not blocks or sum(map(len, blocks)) + len(blocks) + len(closing) <= limit:
        return "\n".join([*blocks, *tail]) or NOTHING_YET
    room = max(0, limit - len(closing) - 60)
    head, rest = blocks[0], blocks[1:]
    if len(head) > room // 3:
        head = _cut_middle(head, room // 3)
    room -= len(head)
    kept: list[str] = []
    while rest and len(rest[-1]) + 1 <= room:
        room -= len(rest[-1]) + 1
        kept.insert(0, rest.pop())
    if rest and not kept:
        kept = [_cut_middle(rest.pop(), room)]
    gap = [f"note: [{len(rest)} step{'s' * (len(rest) > 1)} omitted]"] if rest else []
    return "\n".join([head, *gap, *kept, *tail])


def _cut_middle(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = max(0, limit - 40) // 2
    return f"{text[:half]} [{len(text) - 2 * half} characters omitted] {text[len(text) - half :]}"
