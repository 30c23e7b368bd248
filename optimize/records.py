"""Rollouts that were paid for once are not paid for again: the rows of candidates, kept by candidate and example."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from optimize.candidates import Candidate
from optimize.context import SearchContext
from optimize.rows import Row, mean_score
from programs.errors import ConfigurationError
from programs.role_graph import RoleGraph

logger = logging.getLogger(__name__)


class Records:
    """Evaluates candidates on rows and remembers the usable results for the length of one search."""

    def __init__(self, context: SearchContext) -> None:
        self.context = context
        self._rows: dict[tuple[str, frozenset[str] | None, str], Row] = {}

    def missing(self, candidate: Candidate, rows: Sequence[Any], active: frozenset[str] | None = None) -> list[Any]:
        """The rows on which the candidate still has to be run, each once."""
        unknown = {str(r.id): r for r in rows if (candidate.id, active, str(r.id)) not in self._rows}
        return list(unknown.values())

    def fetch(self, candidate: Candidate, rows: Sequence[Any], active: frozenset[str] | None = None) -> list[Row]:
        """One `Row` per row, in order; what is missing is run and charged, all of it or (an empty list) nothing.

        With `active` the other roles are masked and rows have no traces. A row that was lost to the infrastructure is
        in the result with a score of None, and is tried again next time.
        """
        todo = self.missing(candidate, rows, active)
        run = self.context.evaluate
        done = run(candidate, todo, active=active, want_trace=active is None, whole=True) if todo else []
        if len(done) < len(todo):
            return []
        fresh = {row.id: row for row in done}
        self._rows |= {(candidate.id, active, row.id): row for row in done if row.usable}
        return [self._rows.get((candidate.id, active, str(r.id))) or fresh[str(r.id)] for r in rows]

    def trial(self, candidate: Candidate, rows: Sequence[Any], split: str) -> float | None:
        """The mean score on all of `rows`, logged; None when it is invalid or does not fit the budget."""
        found = self.fetch(candidate, rows)
        score = mean_score(found, len(rows))
        if found:
            self.context.log.evaluated(candidate, split, score, len(found))
        return score


def graph_of(context: SearchContext, rows: Sequence[Row]) -> RoleGraph:
    """The role graph, inferred from `rows` where neither the user nor the program gives one.

    Fewer than three runs show no edges: the roles are then taken as unconnected, with a warning.
    """
    try:
        return context.graph(rows)
    except ConfigurationError as error:
        if len(context.roles.names) > 1:
            logger.warning("no role graph (%s): the roles are taken as unconnected", error)
        context._graph = unconnected(context)
        return context._graph


def unconnected(context: SearchContext) -> RoleGraph:
    """The roles without an edge between them."""
    return RoleGraph(context.roles.names, context.roles.predictors)
