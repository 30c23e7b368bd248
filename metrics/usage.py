"""Model usage of one rollout: calls, tokens and money by role, what was billed apart from what it would cost."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass
class CallRecord:
    """One model call. `cost` is what it costs without a cache, in US dollars; None when the price is unknown."""

    role: str | None = None
    index: int = 0
    round: int = 0
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached: bool = False
    cost: float | None = None
    seconds: float = 0.0
    finish_reason: str | None = None
    failed: bool = False
    source: str = "started"  # "started" -> "tracker" (DSPy's usage tracker) -> "model" (the model's own record)

    @property
    def billed(self) -> float | None:
        """Dollars really paid: nothing on a cache hit, None when the price is unknown."""
        return 0.0 if self.cached else self.cost


class UsageMeter:
    """Counts the model calls of one rollout from any number of threads.

    It is told by `record_call` (models of `programs.lms`, once per call, cache hits too) and, as DSPy's
    `usage_tracker`, by `add_usage` (any other `dspy.LM`, on calls that were not cached; their price is
    unknown). Where a trace recorder announces each call with `call_started`, both reports of one call
    fall on one record; sums are exact (`math.fsum`), so they do not depend on the order of threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[CallRecord] = []
        self._latest: dict[int, CallRecord] = {}  # thread -> the call it started last

    def __deepcopy__(self, memo: dict[int, Any]) -> UsageMeter:
        """DSPy copies a usage tracker into its worker threads; the copy must be the same meter."""
        return self

    def call_started(self, *, model: str, role: str | None = None, index: int = 0, round: int = 0) -> CallRecord:
        """Announce a call of this thread; `call_ended` closes it."""
        record = CallRecord(role=role, index=index, round=round, model=model)
        with self._lock:
            self._calls.append(record)
            self._latest[threading.get_ident()] = record
        return record

    def call_ended(self, record: CallRecord, *, seconds: float, failed: bool) -> None:
        """Close an announced call. A call that nobody reported and that did not fail came from the cache."""
        with self._lock:
            if record.source == "model":
                return
            record.seconds, record.failed = seconds, failed
            record.cached = record.source == "started" and not failed

    def record_call(
        self,
        *,
        role: str | None = None,
        index: int = 0,
        round: int = 0,
        model: str = "",
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        cached: bool = False,
        cost: float | None = None,
        seconds: float = 0.0,
        finish_reason: str | None = None,
    ) -> CallRecord:
        """Record one call with its usage; on a cache hit the usage and cost of the original call."""
        with self._lock:
            record = self._latest.pop(threading.get_ident(), None)
            if record is None:
                record = CallRecord()
                self._calls.append(record)
            record.role = role or record.role
            record.index, record.round = index or record.index, round or record.round
            record.model = model or record.model
            record.prompt_tokens, record.completion_tokens = int(prompt_tokens or 0), int(completion_tokens or 0)
            record.cached, record.cost = bool(cached), None if cost is None else float(cost)
            record.seconds, record.finish_reason = float(seconds or 0.0), finish_reason
            record.failed, record.source = False, "model"
            return record

    def add_usage(self, model: str, usage: dict[str, Any]) -> None:
        """DSPy's usage-tracker call: one request that was not answered from the cache."""
        with self._lock:
            record = self._latest.get(threading.get_ident())
            if record is None or record.model != model:
                if any(call.model == model and call.source == "model" for call in self._calls):
                    return  # that model reports its own calls
                record = CallRecord(model=model)
                self._calls.append(record)
            record.prompt_tokens += int(usage.get("prompt_tokens") or 0)
            record.completion_tokens += int(usage.get("completion_tokens") or 0)
            record.source = "tracker"

    def calls(self) -> list[CallRecord]:
        """The records so far, in the order in which the calls began."""
        with self._lock:
            return list(self._calls)

    def totals(self) -> dict[str, Any]:
        """`lm_calls cached_lm_calls failed_lm_calls truncated_lm_calls prompt_tokens completion_tokens
        usd_billed usd_without_cache lm_seconds`; tokens of cached calls are included, an unknown price is None."""
        return sum_calls(self.calls())

    def by_role(self) -> dict[str, dict[str, Any]]:
        """`totals()` per role (`""` for calls outside any role) with the `models` it used, roles sorted."""
        return group_calls(self.calls())


def sum_calls(calls: Iterable[CallRecord]) -> dict[str, Any]:
    """Sums over call records, see `UsageMeter.totals`."""
    calls = list(calls)
    return {
        "lm_calls": len(calls),
        "cached_lm_calls": sum(call.cached for call in calls),
        "failed_lm_calls": sum(call.failed for call in calls),
        "truncated_lm_calls": sum(call.finish_reason == "length" for call in calls),
        "prompt_tokens": sum(call.prompt_tokens for call in calls),
        "completion_tokens": sum(call.completion_tokens for call in calls),
        "usd_billed": sum_money(call.billed for call in calls if not call.failed),
        "usd_without_cache": sum_money(call.cost for call in calls if not call.failed),
        "lm_seconds": round(math.fsum(call.seconds for call in calls), 3),
    }


def group_calls(calls: Iterable[CallRecord]) -> dict[str, dict[str, Any]]:
    """Sums per role, see `UsageMeter.by_role`."""
    groups: dict[str, list[CallRecord]] = {}
    for call in calls:
        groups.setdefault(call.role or "", []).append(call)
    return {
        role: {"models": sorted({call.model for call in groups[role]}), **sum_calls(groups[role])}
        for role in sorted(groups)
    }


def sum_money(amounts: Iterable[float | None]) -> float | None:
    """Exact sum in dollars, None as soon as one amount is unknown (never 0 for an unknown price)."""
    amounts = list(amounts)
    if any(amount is None for amount in amounts):
        return None
    return round(math.fsum(amount for amount in amounts if amount is not None), 12)


def merge_usage(parts: Iterable[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Sum the `by_role` mappings of many rollouts into one."""
    gathered: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        for role, usage in part.items():
            gathered.setdefault(role, []).append(usage)
    merged: dict[str, dict[str, Any]] = {}
    for role in sorted(gathered):
        usages = gathered[role]
        total: dict[str, Any] = {"models": sorted({model for usage in usages for model in usage.get("models", [])})}
        for key in usages[0]:
            if key == "models":
                continue
            values = [usage.get(key) for usage in usages]
            total[key] = sum_money(values) if key.startswith("usd_") else sum(value or 0 for value in values)
        merged[role] = total
    return merged
