"""Writing instructions with the optimizer's model, and the checks that every proposal passes.

A rewritten instruction must keep the contract of the program's own (`optimize.guard`). Up to three attempts; then the
parent stays. Nothing here logs: proposals are written in threads, and are logged by the caller in order.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dspy

from optimize.clip import PROMPT, clip
from optimize.context import SearchContext
from optimize.guard import problem_with

ATTEMPTS = 3
TEMPERATURE = 0.7
UNCHANGED, UNREADABLE = "unchanged", "unreadable"
OPERATORS: dict[str, str] = {
    "adding": "Add one rule or one step that the feedback calls for. Keep everything else word by word.",
    "replacement": "Replace the passage that the feedback finds fault with by a better one. Keep the rest.",
    "reorganisation": "Put the content into a better order and structure. Add nothing and leave nothing out.",
}
_MARKER_LINE = re.compile(r"^[ \t]*(?:={3,}|-{3,}|\*{3,})[ \t]*$", re.MULTILINE)
_NUMBERED = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+", re.MULTILINE)
_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)


class WriteVariants(dspy.Signature):
    """A team of language models solves tasks; each member works by an instruction. Write other instructions for this
    member: the same job, in other words and with other advice on how to do it well. Keep each one short.

    Separate them by lines that hold only `=====`, and write nothing else.
    """

    role: str = dspy.InputField()
    current_instruction: str = dspy.InputField()
    count: int = dspy.InputField(desc="how many instructions to write")
    variants: str = dspy.OutputField(desc="instructions, separated by lines of =====")


class RewriteInstruction(dspy.Signature):
    """A team of language models solves tasks; each member works by an instruction. Improve the instruction of one
    member by one small edit of the stated kind. Use what the feedback shows; write general advice, not the answer to
    a single task. Keep names in back-ticks, placeholders and tags as they are.
    """

    role: str = dspy.InputField()
    current_instruction: str = dspy.InputField()
    operation: str = dspy.InputField(desc="the kind of edit")
    team_feedback: str = dspy.InputField(desc="how the whole team did")
    role_feedback: str = dspy.InputField(desc="what was said about this member")
    variation: int = dspy.InputField(desc="write another version for every number")
    new_instruction: str = dspy.OutputField(desc="the whole new instruction and nothing else")


@dataclass(frozen=True)
class Proposal:
    """A text that passed all checks, or None with the `problems` of the attempts."""

    text: str | None
    problems: tuple[str, ...] = ()


def clean(text: Any) -> str:
    """A reply without fences and quotation marks around the whole of it."""
    plain = str(text or "").strip()
    if fenced := _FENCE.match(plain):
        plain = fenced[1].strip()
    if len(plain) > 1 and plain[0] == plain[-1] == '"' and plain.count('"') == 2:
        plain = plain[1:-1].strip()
    return plain


def guarded(
    write: Callable[[int], str | None],
    *,
    parent: str,
    seed: str,
    check: Callable[[str], str | None] = lambda text: None,
    attempts: int = ATTEMPTS,
) -> Proposal:
    """The first acceptable text of `write(attempt)`.

    An unchanged text ends the attempts: the model has nothing to add. `seed`: the program's own instruction, whose
    contract must be kept; `check`: a further reason against a text, or None.
    """
    problems: list[str] = []
    for attempt in range(attempts):
        reply = write(attempt)
        text = clean(reply)
        if text == parent.strip():
            problems.append(UNCHANGED)
            break
        problem = UNREADABLE if reply is None else problem_with(text, seed) or check(text)
        if problem is None:
            return Proposal(text, tuple(problems))
        problems.append(problem)
    return Proposal(None, tuple(problems))


def rewrite(
    context: SearchContext,
    signature: type[dspy.Signature],
    inputs: Mapping[str, Any],
    *,
    parent: str,
    seed: str,
    check: Callable[[str], str | None] = lambda text: None,
    temperature: float = TEMPERATURE,
) -> Proposal:
    """One guarded rewrite of `parent` by a signature with `current_instruction` and `new_instruction`."""

    def write(attempt: int) -> str | None:
        current = clip(parent, max(PROMPT, len(seed)))
        reply = context.ask(signature, temperature=temperature, current_instruction=current, **inputs)
        return None if reply is None else reply.new_instruction

    return guarded(write, parent=parent, seed=seed, check=check)


def variants(
    context: SearchContext, role: str, parent: str, *, seed: str, count: int, temperature: float = TEMPERATURE
) -> list[Proposal]:
    """Up to `count` other versions of an instruction from one call, without repetitions."""
    if count < 1:
        return []
    current = clip(parent, max(PROMPT, len(seed)))
    reply = context.ask(WriteVariants, temperature=temperature, role=role, current_instruction=current, count=count)
    if reply is None:
        return [Proposal(None, (UNREADABLE,))]
    texts = parse_variants(reply.variants, count)
    return [guarded(partial(_given, text), parent=parent, seed=seed, attempts=1) for text in texts]


def _given(text: str, attempt: int) -> str:
    return text


def parse_variants(text: Any, count: int) -> list[str]:
    """The instructions of a reply: parts between marker lines, else numbered or bulleted items, else the whole."""
    plain = str(text or "").strip()
    parts = _MARKER_LINE.split(plain)
    if len(parts) == 1:
        starts = [match.start() for match in _NUMBERED.finditer(plain)]
        if len(starts) > 1:
            parts = [plain[a:b] for a, b in zip(starts, [*starts[1:], len(plain)], strict=True)]
    cleaned = [clean(_NUMBERED.sub("", part.strip(), count=1) if len(parts) > 1 else part) for part in parts]
    return list(dict.fromkeys(part for part in cleaned if part))[:count]


def similarity(text: str, parent: str) -> float:
    """Share of common tokens in order, in [0, 1]: how small an edit is."""
    return difflib.SequenceMatcher(None, text.split(), parent.split(), autojunk=False).ratio()


def too_far(parent: str, least: float) -> Callable[[str], str | None]:
    """A check that refuses edits which leave the trust region around `parent`."""

    def check(text: str) -> str | None:
        found = similarity(text, parent)
        return f"similarity {found:.2f} to its parent is below {least:g}" if found < least else None

    return check


def refused(context: SearchContext, predictor: str, proposals: Sequence[Proposal]) -> None:
    """Log every attempt that was refused."""
    for proposal in proposals:
        for problem in proposal.problems:
            context.log.refused(predictor, problem)
