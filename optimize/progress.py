"""A line every few seconds that says how far a phase is."""

from __future__ import annotations

import time
from collections.abc import Callable

from metrics.progress import money
from optimize.rows import Row

EVERY_S = 5.0


class PhaseProgress:
    """Counts finished rollouts and reports through `notify`; `total` is the most there can be (the budget, or the
    rows).
    """

    def __init__(
        self, name: str, total: int, notify: Callable[[str], None], usd: Callable[[], float] | None = None
    ) -> None:
        self.name = name
        self.total = total
        self.notify = notify
        self.usd = usd
        self.done = 0
        self.lost = 0
        self._began = self._last = time.monotonic()

    def __call__(self, row: Row) -> None:
        """Take one finished row."""
        self.done += row.usable
        self.lost += not row.usable
        now = time.monotonic()
        if now - self._last >= EVERY_S:
            self._last = now
            self.notify(self.line(now - self._began))

    def line(self, seconds: float) -> str:
        """`optimize: 57/600 rollouts · 3.4/s · $0.0123 · 2 lost`."""
        parts = [f"{self.name}: {self.done}/{self.total} rollouts", f"{self.done / seconds if seconds else 0:.1f}/s"]
        if self.usd is not None:
            parts.append(money(self.usd()))
        if self.lost:
            parts.append(f"{self.lost} lost to the infrastructure")
        return " · ".join(parts)
