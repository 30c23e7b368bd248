"""Trials of whole assignments on a batch of training and validation rows, as MAPRO makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optimize import seeds
from optimize.candidates import Candidate
from optimize.context import SearchContext
from optimize.records import Records
from optimize.rows import Row, mean_score


class Trials:
    """Assignments that were run on the evaluation batch; each is paid for once."""

    def __init__(self, context: SearchContext, train: Sequence[Any], validation: Sequence[Any]) -> None:
        self.context = context
        self.train, self.validation = list(train), list(validation)
        self.records = Records(context)
        self.scores: dict[str, float | None] = {}
        self.cost = len({str(row.id) for row in (*train, *validation)})

    def score(self, candidate: Candidate) -> float | None:
        """The mean on the rows of choice; None when the trial is invalid or does not fit the budget."""
        rows = self.records.fetch(candidate, [*self.train, *self.validation])
        if not rows:
            return None
        choice = rows[len(self.train) :] or rows
        score = mean_score(choice) if all(row.usable for row in rows) else None
        split = "validation" if self.validation else "train"
        beside = {"beside": {"train": len(self.train)}} if self.validation and self.train else {}
        self.context.log.evaluated(candidate, split, score, len(choice), **beside)
        self.scores[candidate.id] = score
        return score

    def see_more(self, candidate: Candidate, iteration: int) -> None:
        """Take other training rows, on which an assignment that stays is run. The old ones are kept where the budget
        does not hold these and another assignment, and where training rows are what assignments are chosen by.
        """
        context = self.context
        rows = seeds.draw(context.train, len(self.train), context.seed, "mapro", "train", iteration)
        cost = len(self.records.missing(candidate, rows)) + self.cost
        if self.validation and cost <= context.ledger.remaining and self.records.fetch(candidate, rows):
            self.train = rows

    def seen(self, candidate: Candidate) -> bool:
        """Whether an assignment was run on the training rows of now."""
        return not self.records.missing(candidate, self.train)

    def rows(self, candidate: Candidate) -> list[Row]:
        """The training rows of an assignment that was run, with traces."""
        return self.records.fetch(candidate, self.train)
