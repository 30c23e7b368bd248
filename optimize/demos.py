"""Demonstrations: successful runs of the baseline on training rows, cut into one example per predictor.

Rows are run in batches of a fixed size, so that the choice does not depend on the number of threads. Demos are plain
data: tool names instead of tools, no row of the dataset, only what the program itself read and wrote.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from optimize.context import SearchContext
from optimize.jsonable import jsonable
from optimize.rows import Row, mean_score

BATCH = 16
THRESHOLD = 1.0  # a half-right run is no example to follow


def drops_demos(context: SearchContext) -> bool:
    """True for a program that calls tools natively: the provider's messages have no place for demos."""
    return getattr(context.program, "tool_calling", None) == "native"


def successes(context: SearchContext, *, most_rows: int, wanted: int) -> list[Row]:
    """Runs of the baseline with full score on training rows, in a drawn order: `wanted` of them, or what
    `most_rows` give.
    """
    rows = list(context.train)
    context.rng("demo rows").shuffle(rows)
    found: list[Row] = []
    for start in range(0, min(most_rows, len(rows)), BATCH):
        done = context.evaluate(context.baseline, rows[start : min(start + BATCH, most_rows)])
        found += [row for row in done if row.score is not None and row.score >= THRESHOLD]
        context.log.note("bootstrapped", tried=len(done), successes=len(found), mean=mean_score(done))
        if len(found) >= wanted or not done:
            break
    return found[:wanted]


def demos_of(row: Row, rng: random.Random) -> dict[str, dict[str, Any]]:
    """One demo per predictor that the run called. Of several calls, half of the time the last, else an earlier one."""
    calls: dict[str, list[dict[str, Any]]] = {}
    for call in row.calls:
        if not call.masked:
            fields = {**jsonable(dict(call.inputs)), **jsonable(call.prediction)}
            calls.setdefault(call.predictor, []).append({"augmented": True, **fields})
    chosen = {}
    for name, demos in sorted(calls.items()):
        chosen[name] = demos[-1] if len(demos) == 1 or rng.random() < 0.5 else rng.choice(demos[:-1])
    return chosen


def demo_sets(
    rows: Sequence[Row], predictors: Sequence[str], *, n_sets: int, size: int, rng: random.Random
) -> list[dict[str, list[dict[str, Any]]]]:
    """`n_sets` choices of demos per predictor: none, the first ones, then random ones of random size.

    Fewer sets come back when there are no successful runs to choose from.
    """
    empty: dict[str, list[dict[str, Any]]] = {name: [] for name in predictors}
    if not rows or size < 1:
        return [empty]
    cut = [demos_of(row, rng) for row in rows]
    sets = [empty]
    for k in range(n_sets - 1):
        order = list(range(len(cut)))
        n = size
        if k > 0:
            rng.shuffle(order)
            n = rng.randint(1, size)
        sets.append({name: [cut[i][name] for i in order if name in cut[i]][:n] for name in predictors})
    return sets
