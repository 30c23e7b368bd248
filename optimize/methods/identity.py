"""`identity`: the baseline itself, scored on the rows. The control of every experiment, and a throughput test."""

from __future__ import annotations

from typing import ClassVar

from optimize.candidates import Candidate
from optimize.context import SearchContext
from optimize.methods.base import Method


class Identity(Method):
    """Changes nothing: one pass over the validation rows, then over the training rows, as far as the budget goes."""

    name: ClassVar[str] = "identity"
    needs_optimizer_model: ClassVar[bool] = False
    changes_programs: ClassVar[bool] = False

    def minimum_budget(self, context: SearchContext) -> int:
        return 1

    def run(self, context: SearchContext) -> Candidate:
        for split, rows in (("validation", context.validation), ("train", context.train)):
            done = context.evaluate(context.baseline, rows, want_trace=False)
            if done:
                scores = [row.score for row in done if row.score is not None]
                score = sum(scores) / len(scores) if len(scores) == len(rows) else None
                context.log.evaluated(context.baseline, split, score, len(done))
                if split == "validation":
                    context.log.commit(context.baseline, score)
        return context.baseline
