"""Running a method: how a search starts, how it may end, and that it says nothing on stdout."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from metrics.errors import ConfigurationError
from optimize.candidates import Candidate
from optimize.stops import StopSearch

if TYPE_CHECKING:
    from optimize.context import SearchContext
    from optimize.methods.base import Method

logger = logging.getLogger(__name__)


def check_budget(method: Method, context: SearchContext) -> None:
    """Refuse a budget that cannot score one proposal, with the number that is needed (`ConfigurationError`)."""
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
        context.log.stop_reason = "money" if context.ledger.out_of_money else stop.reason
        best = context.log.incumbent
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
    tqdm = sys.modules.get("tqdm")
    if tqdm is None:
        import tqdm  # type: ignore[no-redef]
    original = tqdm.std.tqdm.__init__

    def silent(self, *args, **kwargs):  # noqa: ANN001, ANN002, ANN003, ANN202 (a stand-in for any signature)
        kwargs["disable"] = True
        original(self, *args, **kwargs)

    tqdm.std.tqdm.__init__ = silent
    try:
        yield
    finally:
        tqdm.std.tqdm.__init__ = original
