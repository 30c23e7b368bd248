"""Where a job stands, live on stderr: phase, rollouts of the budget, best so far, last proposal, tokens, money."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from metrics.console import percent
from metrics.progress import Progress, duration, make_progress, money
from metrics.usage import sum_money
from optimize.ledger import BudgetLedger
from optimize.rows import Row
from optimize.stats import SearchLog

# events that are a line of their own when verbose
SHOWN = ("proposed", "accepted", "rejected", "refused", "skipped", "evaluated")


@dataclass
class JobState:
    """The numbers behind one line. In the search `ledger` and `log` are its own; later phases count rows."""

    phase: str = "prepare"
    done: int = 0
    lost: int = 0
    total: int = 0
    ledger: BudgetLedger | None = None
    log: SearchLog | None = None
    proposal: str = ""
    ended: bool = False
    tokens: int = 0
    usd: float | None = 0.0
    begun_with: int = 0  # nothing is told apart: a resumed search passes its recorded rollouts in a moment
    started: float = field(default_factory=time.monotonic)
    _sources: list[Sequence[Mapping[str, Any]]] = field(default_factory=list)
    _read: list[int] = field(default_factory=list)

    def watch(self, *usages: Sequence[Mapping[str, Any]]) -> None:
        """Count tokens and money from lists that grow: per call or run, `{role: {prompt_tokens ...}}`."""
        self._sources += usages
        self._read += [0] * len(usages)

    def count(self) -> None:
        """Add what the watched lists have gained since."""
        for index, source in enumerate(self._sources):
            end = len(source)
            for by_role in source[self._read[index] : end]:
                for part in by_role.values():
                    self.tokens += (part.get("prompt_tokens") or 0) + (part.get("completion_tokens") or 0)
                    self.usd = sum_money([self.usd, part.get("usd_billed")])
            self._read[index] = end

    def line(self) -> str:
        """`optimize · 45/120 rollouts · best 60.0% (baseline 10.0%) · proposal 7: ... · 3.4/s · at most 0:22 left`."""
        self.count()
        spent, total = (self.done, self.total) if self.ledger is None else (self.ledger.spent, self.ledger.limit)
        parts = [self.phase, f"{spent:g}/{total} rollouts" if total else ""]
        if self.log is not None and self.log.best_score is not None:
            parts.append(f"best {percent(self.log.best_score)} (baseline {percent(self.log.seed_score)})")
        lost = f"{self.lost} lost to the infrastructure" if self.lost else ""
        parts += [self.proposal, lost, f"{self.tokens:,} tokens", money(self.usd)]
        elapsed = time.monotonic() - self.started
        if spent and total and elapsed > 0:
            rate = spent / elapsed
            parts.append(f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min")
            if spent < total and not self.ended:
                parts.append(f"{'at most ' if self.ledger else ''}{duration((total - spent) / rate)} left")
        return " · ".join(part for part in parts if part)


class JobProgress:
    """What a job reports to. `screen` draws (`metrics.progress`); `verbose` tells every proposal and its fate."""

    def __init__(self, screen: Progress | None = None, *, verbose: bool = False) -> None:
        self.screen = screen
        self.verbose = verbose
        self.state = JobState()
        self._on = False

    def note(self, text: str) -> None:
        """One line for people."""
        if self.screen is not None:
            self.screen.note(text)

    def search(self, ledger: BudgetLedger, log: SearchLog, *usages: Sequence[Mapping[str, Any]]) -> None:
        """The search begins."""
        self._begin(JobState("optimize", ledger=ledger, log=log), usages)

    def rows(self, phase: str, total: int, usage: Sequence[Mapping[str, Any]]) -> None:
        """A phase of `total` uncharged rollouts begins; tokens and money go on from the phase before."""
        self._begin(JobState(phase, total=total), [usage])

    def _begin(self, state: JobState, usages: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        self.state.count()
        state.tokens, state.usd = self.state.tokens, self.state.usd
        state.watch(*usages)
        self._end_line()
        self.state = state
        if self.screen is not None:
            self.screen.start(state)
            self._on = True

    def row(self, row: Row) -> None:
        """One finished rollout."""
        self.state.done += row.usable
        self.state.lost += not row.usable
        if self.screen is not None:
            self.screen.update(self.state, {})

    def event(self, event: Mapping[str, Any]) -> None:
        """One entry of the search's log."""
        kind = event.get("event")
        log = self.state.log
        if kind in ("proposed", "refused"):
            changed = event.get("changed") or [event.get("predictor") or ""]
            what = ", ".join(changed) if len(changed) <= 2 else f"of {len(changed)} prompts"
            self.state.proposal = f"proposal {log.tried if log else ''}: {event.get('origin') or kind} {what}".rstrip()
        elif kind in ("accepted", "rejected") and self.state.proposal:
            self.state.proposal = f"{self.state.proposal.split(' -> ')[0]} -> {kind}"
        if self.verbose and kind in SHOWN:
            told = " ".join(f"{key} {value}" for key, value in event.items() if key not in ("event", "parent"))
            self.note(f"{kind}: {' '.join(told.split())[:300]}")

    def close(self) -> None:
        """Leave the last line on the screen."""
        self._end_line()

    def _end_line(self) -> None:
        if self.screen is not None and self._on:
            self.state.ended = True
            self.screen.close(self.state)
            self._on = False


def job_progress(*, quiet: bool = False, verbose: bool = False, stream: TextIO | None = None) -> JobProgress:
    """The progress of a job for a stream: nothing when quiet, live on a terminal, else plain lines."""
    if quiet:
        return JobProgress()
    return JobProgress(make_progress(stream=stream), verbose=verbose)

