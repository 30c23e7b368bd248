"""Live progress of a run on stderr: one line that stays in place on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

from metrics.statistics import wilson_interval
from metrics.text import plural
from metrics.usage import sum_money

PLAIN_SECONDS = 5.0  # between two plain lines


@dataclass
class RunState:
    """Where a run stands: totals over all rows of the folder, `begun_with` of them from an earlier run.

    `remark` stands beside the running score (whose score it is, where that could be mistaken).
    """

    total: int
    begun_with: int = 0
    remark: str = ""
    done: int = 0
    scored: int = 0
    right: float = 0.0
    errors: int = 0
    lm_calls: int = 0
    tokens: int = 0
    usd: float | None = 0.0
    started: float = field(default_factory=time.monotonic)

    def add(self, row: dict[str, Any], primary: str) -> None:
        """Count one finished row."""
        self.done += 1
        if row.get("error") and row["error"].get("kind") != "refused":
            self.errors += 1
        elif not row.get("skipped"):
            self.scored += 1
            self.right += float(row.get(primary) or 0)
        self.lm_calls += row.get("n_lm_calls") or 0
        self.tokens += (row.get("prompt_tokens") or 0) + (row.get("completion_tokens") or 0)
        self.usd = sum_money([self.usd, row.get("usd_billed")])

    def line(self) -> str:
        """`12/100 · score 58.3% [32.0, 80.7] · 1 error · 3,456 tokens · $0.0123 · 2.1/s · 0:41 left`."""
        parts = [f"{self.done}/{self.total}"]
        if self.scored:
            low, high = wilson_interval(round(self.right), self.scored)
            parts.append(f"score {100 * self.right / self.scored:.1f}% [{100 * low:.1f}, {100 * high:.1f}]")
            parts.append(self.remark)
        if self.errors:
            parts.append(f"{self.errors} error{'s' if self.errors > 1 else ''}")
        parts.append(f"{self.tokens:,} tokens")
        parts.append(money(self.usd))
        elapsed = time.monotonic() - self.started
        fresh = self.done - self.begun_with
        if fresh > 0 and elapsed > 0:
            rate = fresh / elapsed
            parts.append(f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min")
            if self.done < self.total:
                parts.append(f"{duration((self.total - self.done) / rate)} left")
        return " · ".join(part for part in parts if part)


class State(Protocol):
    """What is shown: `line()` says where things stand; `begun_with` of `total` were done before."""

    begun_with: int
    total: int

    def line(self) -> str: ...


class Progress(Protocol):
    """What a run reports to; `close` is called however the run ends."""

    def start(self, state: State) -> None: ...
    def update(self, state: State, row: dict[str, Any]) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self, state: State) -> None: ...


class SilentProgress:
    """Shows nothing but notes that matter (why a run stops), on stderr."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr

    def start(self, state: State) -> None:
        """Nothing."""

    def update(self, state: State, row: dict[str, Any]) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Write the note."""
        self.stream.write(text + "\n")
        self.stream.flush()

    def close(self, state: State) -> None:
        """Nothing."""


class PlainProgress(SilentProgress):
    """A line every few seconds and one at the end; with `verbose` one per question."""

    def __init__(self, stream: TextIO | None = None, *, verbose: bool = False) -> None:
        super().__init__(stream)
        self.verbose = verbose
        self._last = time.monotonic()

    def start(self, state: State) -> None:
        """Say how much there is to do."""
        if state.begun_with:
            self.note(f"{state.begun_with} of {plural(state.total, 'question')} done already")

    def update(self, state: State, row: dict[str, Any]) -> None:
        """One finished question."""
        if self.verbose:
            self.note(row_line(row))
        now = time.monotonic()
        if now - self._last >= PLAIN_SECONDS:
            self._last = now
            self.note(state.line())

    def close(self, state: State) -> None:
        """The last line."""
        self.note(state.line())


class LiveProgress(SilentProgress):
    """One line in place (rich), redrawn a few times a second; notes scroll above it."""

    def __init__(self, stream: TextIO | None = None, *, verbose: bool = False) -> None:
        super().__init__(stream)
        from rich.console import Console
        from rich.live import Live

        self.verbose = verbose
        self._state: State | None = None
        self._console = Console(file=self.stream)
        self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=3)

    def start(self, state: State) -> None:
        """Begin to draw."""
        self._state = state
        self._live.start()

    def update(self, state: State, row: dict[str, Any]) -> None:
        """One finished question."""
        if self.verbose:
            self.note(row_line(row))

    def note(self, text: str) -> None:
        """A line above the live one."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self, state: State) -> None:
        """Leave the last state on the screen."""
        self._live.refresh()
        self._live.stop()

    def _render(self) -> Any:
        from rich.text import Text

        line = self._state.line() if self._state is not None else ""
        return Text(line)  # wraps on a narrow terminal


def make_progress(*, quiet: bool = False, verbose: bool = False, stream: TextIO | None = None) -> Progress:
    """The progress for a stream: silent when quiet, live on a terminal, else plain lines."""
    stream = stream or sys.stderr
    if quiet:
        return SilentProgress(stream)
    return LiveProgress(stream, verbose=verbose) if stream.isatty() else PlainProgress(stream, verbose=verbose)


def row_line(row: dict[str, Any]) -> str:
    """One question on one line: id, verdict, answer, calls, seconds."""
    error = row.get("error")
    if error:
        verdict = f"{error['kind']}: {error['message']}"
    else:
        score = row.get("correct", row.get("em"))
        verdict = f"{'right' if score else 'wrong'}  {row.get('predicted_answer')!r}"
    text = f"{row['id']}  {verdict}  ({row.get('n_lm_calls')} calls, {row.get('latency_s')} s)"
    return " ".join(text.split())[:300]


def money(usd: float | None) -> str:
    """Dollars for people; an unknown price is `$ n/a`, never 0."""
    return "$ n/a" if usd is None else f"${usd:.4f}"


def duration(seconds: float) -> str:
    """`m:ss`, or `h:mm:ss`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
