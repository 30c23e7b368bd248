"""Joint evaluation: is a change of one role better for the role, for its readers, and for the team?

MASPO (arXiv 2605.06623): two assignments that differ in one role are run on the same examples. Per example the role's
outputs (local), its readers' outputs (next) and the final answers (global) are compared. A sample that the role wins
while its readers or the team lose is misaligned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from optimize.clip import MESSAGE, OUTPUT, TASK, clip
from optimize.context import SearchContext
from optimize.judge import NEUTRAL, CompareAnswers, CompareOutputs, Pair, compare
from optimize.rows import Row
from optimize.work import NOTHING, last_received, piece_text, pieces, work_text

CASES = 3  # kept per buffer

Weights = tuple[float, float, float]  # local, next, global


@dataclass(frozen=True)
class Sample:
    """What one example says: credits in [0, 1] of the candidate against its reference, 0.5 for a tie.

    `base` and `row` are the two runs. `next` is the mean over the role's readers; `local` and `next` are None where
    they have no weight, or where the role has no reader.
    """

    base: Row
    row: Row
    local: float | None
    next: float | None
    total: float

    @property
    def priority(self) -> int | None:
        """0 when the role won and both its readers and the team lost, 1 only its readers, 2 only the team; else
        None.
        """
        return misalignment(
            self.local is not None and self.local > NEUTRAL,
            self.next is not None and self.next < NEUTRAL,
            self.total < NEUTRAL,
        )

    @property
    def lost(self) -> bool:
        """The role itself did worse; for a role without readers that is the final answer."""
        return (self.total if self.local is None else self.local) < NEUTRAL


def misalignment(local_won: bool, next_lost: bool, total_lost: bool) -> int | None:
    """Priority of a misaligned sample; None for an aligned one."""
    if not local_won or not (next_lost or total_lost):
        return None
    return 0 if next_lost and total_lost else 1 if next_lost else 2


def win_rate(samples: Sequence[Sample], weights: Weights) -> float:
    """w in [0, 1]: weighted means over examples; without readers (`local` is None everywhere) the final answers
    alone; 0.5 for no samples.
    """
    if not samples:
        return NEUTRAL
    total = _mean([s.total for s in samples])
    if all(s.local is None for s in samples):
        return total
    local = _mean([s.local for s in samples if s.local is not None])
    following = _mean([s.next for s in samples if s.next is not None])
    return weights[0] * local + weights[1] * following + weights[2] * total


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else NEUTRAL


def compare_runs(
    context: SearchContext,
    role: str,
    readers: Sequence[str],
    runs: Sequence[tuple[Row, Row]],
    *,
    weights: Weights,
    terminal: bool,
    signal: Literal["metric", "judge"] = "metric",
    orders: Literal["both", "hashed"] = "both",
) -> list[Sample]:
    """One sample per pair (run of the reference, run of the candidate) in which both are usable.

    `terminal`: the role has no readers, only final answers count. `signal`: final answers are compared by the metric's
    scores or by the judge. Comparisons without weight are not made.
    """
    pairs = [(base, row) for base, row in runs if base.usable and row.usable]
    asked: list[list[str]] = [[] if terminal or not weights[0] else [role], list(readers) if weights[1] else []]
    outputs: list[Pair] = []
    places: list[tuple[int, str, int]] = []  # sample, role, comparisons
    for n, (base, row) in enumerate(pairs):
        for name in [] if terminal else [*asked[0], *asked[1]]:
            made = _output_pairs(name, base, row)
            places.append((n, name, len(made)))
            outputs += made
    credits = iter(compare(context, CompareOutputs, outputs, orders=orders))
    by_role: list[dict[str, float]] = [{} for _ in pairs]
    for n, name, count in places:
        by_role[n][name] = _mean([next(credits) for _ in range(count)])
    totals = _totals(context, pairs, signal, orders)
    return [
        Sample(
            base,
            row,
            None if terminal else found.get(role, NEUTRAL),
            _mean([found[name] for name in readers if name in found])
            if any(name in found for name in readers)
            else None,
            total,
        )
        for (base, row), found, total in zip(pairs, by_role, totals, strict=True)
    ]


def _output_pairs(role: str, base: Row, row: Row) -> list[Pair]:
    """The pieces of work that a role did in both runs, the candidate's first; none where one of them is missing."""
    before, after = pieces(base, role), pieces(row, role)
    common = {"task": clip(str(base.example.question), TASK), "role": role}
    return [(common, piece_text(after[key], OUTPUT), piece_text(before[key], OUTPUT)) for key in before if key in after]


def _totals(
    context: SearchContext,
    pairs: Sequence[tuple[Row, Row]],
    signal: str,
    orders: Literal["both", "hashed"],
) -> list[float]:
    if signal == "metric":
        return [_won(row.score or 0.0, base.score or 0.0) for base, row in pairs]
    questions: list[tuple[Mapping[str, Any], str, str]] = [
        (
            {
                "task": clip(str(base.example.question), TASK),
                "requirement": str(getattr(base.example, "answer_format", None) or NOTHING),
            },
            str(row.answer or ""),
            str(base.answer or ""),
        )
        for base, row in pairs
    ]
    return compare(context, CompareAnswers, questions, orders=orders)


def _won(score: float, base: float) -> float:
    return 1.0 if score > base else 0.0 if score < base else NEUTRAL


def misaligned(samples: Sequence[Sample]) -> list[Sample]:
    """The misaligned samples, the worst kind first."""
    found = [s for s in samples if s.priority is not None]
    return sorted(found, key=lambda s: s.priority or 0)


def remember(buffer: list[Sample], new: Sequence[Sample]) -> None:
    """Put new samples in front, one per example, and keep the first few."""
    unique: dict[str, Sample] = {}
    for sample in (*new[:CASES], *buffer):
        unique.setdefault(sample.row.id, sample)
    buffer[:] = list(unique.values())[:CASES]


def case_text(sample: Sample, reader: str) -> str:
    """A case in which a reader did worse, as its sender sees it."""
    row = sample.row
    return (
        f"{reader} for the task: {clip(str(row.example.question), MESSAGE)}\n"
        f"received: {last_received(row, reader, MESSAGE)}\nwrote: {work_text(row, reader, MESSAGE)}"
    )
