"""`bootstrap`: demonstrations from the program's own successful runs, as DSPy's `BootstrapFewShot` makes them.

The cheap method: no optimizer model, one candidate. Differences: rows run in threads inside the budget, labelled rows
of the dataset never become demos, and the candidate is scored before it is returned.
"""

from __future__ import annotations

from typing import Any, ClassVar

from metrics.errors import ConfigurationError
from optimize.candidates import Candidate
from optimize.context import SearchContext
from optimize.demos import demo_sets, drops_demos, successes
from optimize.methods.base import Method
from optimize.methods.presets import check_at_least


class Bootstrap(Method):
    """`max_demos` per predictor, from at most `max_rows` training rows (0: all that the budget leaves)."""

    name: ClassVar[str] = "bootstrap"
    needs_optimizer_model: ClassVar[bool] = False

    def __init__(self, metric: Any = None, *, max_demos: int = 4, max_rows: int = 0, **common: Any) -> None:
        super().__init__(metric, **common)
        check_at_least(1, max_demos=max_demos)
        check_at_least(0, max_rows=max_rows)
        self.max_demos = max_demos
        self.max_rows = max_rows

    def check(self, context: SearchContext) -> None:
        if drops_demos(context):
            raise ConfigurationError("demos are dropped in native tool calling: bootstrap needs --tool-calling text")

    def minimum_budget(self, context: SearchContext) -> int:
        return 1 + 2 * len(context.validation)

    def run(self, context: SearchContext) -> Candidate:
        baseline, log = context.baseline, context.log
        before = context.trial(baseline, context.validation, "validation")
        log.commit(baseline, before)
        spare = context.ledger.remaining - len(context.validation)
        runs = successes(context, most_rows=min(self.max_rows or spare, spare), wanted=self.max_demos)
        predictors = list(baseline.instructions)
        rng = context.rng("demos")
        found = demo_sets(runs, predictors, n_sets=2, size=self.max_demos, rng=rng)[1:]
        if not found:
            log.skipped("no run on a training row succeeded, so there is nothing to show")
        for demos in found:
            candidate = baseline.with_demos(demos)
            log.proposed(candidate, origin="demos", demos=len(runs))
            after = context.trial(candidate, context.validation, "validation")
            better = before is not None and after is not None and after > before
            log.decided(candidate, better, f"{before} -> {after}")
            if better:
                log.commit(candidate, after)
        return log.incumbent
