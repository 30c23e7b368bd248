"""One budget per question, shared by all agents of a team and checked between model calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

CALLS_PER_AGENT = 60
MAX_DEPTH = 2
QUESTION_SECONDS = 600.0


class QuestionBudget:
    """Limits of one question: model calls, wall-clock time, optionally tokens and money, and delegation depth.

    `refusal()` names the limit that was reached (`budget_calls`, `budget_time`, `budget_tokens`,
    `budget_usd`) or is None. Reaching a limit is no error: the answering role gives its final answer
    once, outside the budget, and the row is scored.

    Agents that run side by side get shares fixed before they start (`split`) and hand back what they
    used (`join`): which agent runs out never depends on thread timing. `path` says whose share it is: how often the
    budget above was split, and the place among the shares, from the outermost down; empty for the question's own.
    """

    def __init__(
        self,
        calls: int,
        *,
        seconds: float = QUESTION_SECONDS,
        deadline: float | None = None,
        tokens: int | None = None,
        usd: float | None = None,
        max_depth: int = MAX_DEPTH,
        depth: int = 1,
        path: tuple[int, ...] = (),
    ) -> None:
        self.calls = calls
        self.deadline = time.monotonic() + seconds if deadline is None else deadline
        self.tokens = tokens
        self.usd = usd
        self.max_depth = max_depth
        self.depth = depth
        self.path = path
        self.splits = 0
        self.used_calls = 0
        self.used_tokens = 0
        self.used_usd = 0.0
        self._lock = threading.Lock()

    def refusal(self) -> str | None:
        """The limit that forbids another model call, or None."""
        if time.monotonic() >= self.deadline:
            return "budget_time"
        if self.used_calls >= self.calls:
            return "budget_calls"
        if self.tokens is not None and self.used_tokens >= self.tokens:
            return "budget_tokens"
        if self.usd is not None and self.used_usd >= self.usd:
            return "budget_usd"
        return None

    def may_delegate(self) -> bool:
        """False when one more level of agents would exceed the depth limit."""
        return self.depth < self.max_depth

    def record(self, *, calls: int = 1, tokens: int = 0, usd: float = 0.0) -> None:
        """Book model calls that were made, with the tokens and the money they took (0 when unknown)."""
        with self._lock:
            self.used_calls += calls
            self.used_tokens += tokens
            self.used_usd += usd

    def split(self, n: int, *, deeper: bool = False) -> list[QuestionBudget]:
        """`n` equal shares of what is left; the remainder goes to the first ones."""
        calls = max(0, self.calls - self.used_calls)
        tokens = None if self.tokens is None else max(0, self.tokens - self.used_tokens)
        usd = None if self.usd is None else max(0.0, self.usd - self.used_usd)
        self.splits += 1
        return [
            QuestionBudget(
                calls // n + (i < calls % n),
                deadline=self.deadline,
                tokens=None if tokens is None else tokens // n + (i < tokens % n),
                usd=None if usd is None else usd / n,
                max_depth=self.max_depth,
                depth=self.depth + deeper,
                path=(*self.path, self.splits, i),
            )
            for i in range(n)
        ]

    def join(self, shares: Sequence[QuestionBudget]) -> None:
        """Book what the shares used."""
        for share in shares:
            self.record(calls=share.used_calls, tokens=share.used_tokens, usd=share.used_usd)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
