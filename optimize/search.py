"""Running a method: how a search starts, how it may end, and that it says nothing on stdout."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from metrics.errors import ConfigurationError
from optimize.candidates import Candidate
from optimize.stops import StopSearch

if TYPE_CHECKING:
    from optimize.context import SearchContext
    from optimize.methods.base import Method

logger = logging.getLogger(__name__)


def check_budget(method: Method, context: SearchContext) -> None:
    """`ConfigurationError` for a program without anything to change, or a budget that cannot score one proposal."""
    if method.changes_programs and not context.baseline.instructions:
        frozen = ", ".join(context.roles.frozen)
        raise ConfigurationError(
            f"nothing to optimize: all predictors are inside compiled sub-modules ({frozen}); "
            "set _compiled = False on the sub-modules that may change"
            if frozen
            else "nothing to optimize, no predictor found: build them (and modules such as dspy.ReAct) in __init__"
        )
    method.check(context)
    needed = method.minimum_budget(context)
    if context.ledger.limit < needed:
        raise ConfigurationError(
            f"a budget of {context.ledger.limit} rollouts cannot score one proposal of {method.name} here "
            f"({len(context.train)} training and {len(context.validation)} validation rows): it needs at least {needed}"
        )


def run_search(method: Method, context: SearchContext) -> Candidate:
    """Run a method to its end, its convergence or the end of the budget; returns its best candidate.

    Whatever ends the search early (`StopSearch`), the best so far is kept. `EndpointDown` and `BugFound` pass
    through.
    """
    check_budget(method, context)
    try:
        with quiet():
            best = method.run(context)
        if not context.log.stop_reason:
            context.log.stop_reason = "budget" if context.ledger.remaining == 0 else "end"
    except StopSearch as stop:
        context.log.stop_reason = stop.reason
        best = context.log.incumbent
    if context.log.stop_reason == "budget" and (context.ledger.cut_by_money or context.ledger.out_of_money):
        context.log.stop_reason = "money"
    context.log.note("end", reason=context.log.stop_reason, candidate=best.id)
    return best


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep stdout clean: prints of teleprompters and progress bars go nowhere, their log lines stay log lines."""
    chatter = [logging.getLogger(name) for name in ("dspy", "gepa", "optuna")]
    levels = [log.level for log in chatter]
    for log in chatter:
        log.setLevel(max(logging.ERROR, log.level))
    hidden = io.StringIO()
    try:
        with contextlib.redirect_stdout(hidden), _without_progress_bars():
            yield
    finally:
        for log, level in zip(chatter, levels, strict=True):
            log.setLevel(level)


@contextlib.contextmanager
def _without_progress_bars() -> Iterator[None]:
    """tqdm reads `TQDM_DISABLE` at import only, so bars are silenced at the class."""
    from tqdm.std import tqdm

    original = tqdm.__init__

    def silent(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **{**kwargs, "disable": True})

    tqdm.__init__ = silent
    try:
        yield
    finally:
        tqdm.__init__ = original
