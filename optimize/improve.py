"""Improving an instruction from runs of its role: MASPO's proposer (M1 of arXiv 2605.06623)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import dspy

from optimize import rewriter
from optimize.clip import MESSAGE, OUTPUT, TASK, clip
from optimize.context import SearchContext
from optimize.feedback import feedback_for
from optimize.joint import CASES
from optimize.rows import Row
from optimize.work import blocks, last_received, work_text


class ImproveInstruction(dspy.Signature):
    """A team of language models solves tasks; each member works by an instruction. Improve the instruction of one
    member: see in its runs what it did well and what went wrong, say what has to change, and write the new
    instruction. Write general advice, not the answer to a single task. Keep names in back-ticks, placeholders and tags
    as they are.
    """

    role: str = dspy.InputField()
    current_instruction: str = dspy.InputField()
    runs: str = dspy.InputField(desc="what the member received and wrote in some runs")
    readers_trouble: str = dspy.InputField(desc="cases in which members that read its output did worse")
    requirement: str = dspy.InputField(desc="what the member's output is for")
    variation: int = dspy.InputField(desc="write another version for every number")
    analysis: str = dspy.OutputField(desc="what the runs show, briefly")
    changes: str = dspy.OutputField(desc="what the new instruction changes, briefly")
    new_instruction: str = dspy.OutputField(desc="the whole new instruction and nothing else")


def improve(
    context: SearchContext,
    role: str,
    *,
    parent: str,
    seed: str,
    parts: Sequence[Sequence[Row]],
    readers: Sequence[str],
    trouble: Sequence[str],
    labels: bool,
) -> list[rewriter.Proposal]:
    """One proposal per part of a batch. `trouble`: cases in which readers did worse; with `labels` the proposer sees
    what the score says about each run.
    """
    common = {
        "role": role,
        "readers_trouble": blocks(trouble[:CASES]),
        "requirement": f"It is read by: {', '.join(readers)}." if readers else "It is the team's final answer.",
    }

    def write(item: tuple[int, Sequence[Row]]) -> rewriter.Proposal:
        slot, rows = item
        inputs = {
            **common,
            "runs": blocks([run_text(context, row, role, labels) for row in rows]),
            "variation": slot + 1,
        }
        return rewriter.rewrite(context, ImproveInstruction, inputs, parent=parent, seed=seed)

    return context.map(write, list(enumerate(parts)))


def run_text(context: SearchContext, row: Row, role: str, labels: bool) -> str:
    """One run as the proposer sees it."""
    lines = [
        f"task: {clip(str(row.example.question), TASK)}",
        f"received: {last_received(row, role, MESSAGE)}",
        f"wrote: {work_text(row, role, OUTPUT)}",
    ]
    if labels:
        lines.append(f"outcome: {feedback_for(context, row, role)}")
    return "\n".join(lines)


def in_parts(rows: Sequence[Row], parts: int) -> list[list[Row]]:
    """Rows in `parts` runs of nearly equal length, in order; fewer when there are fewer rows."""
    parts = min(parts, len(rows))
    cuts = [round(n * len(rows) / parts) for n in range(parts + 1)] if parts else []
    return [list(rows[a:b]) for a, b in itertools.pairwise(cuts)]
