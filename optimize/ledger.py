"""The budget: rollouts are reserved before they are dispatched, so that no thread count can overshoot.

A rollout is one run of the whole program on one row with the metric computed. Usable ones are charged, right or wrong
or malformed; infrastructure failures are given back. Calls of judges, rewriters, proposers and single-role probes are
counted and priced, never charged. A money cap closes the ledger: what was paid for stays, nothing new starts.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from fractions import Fraction
from typing import Any, Literal

from metrics.errors import ConfigurationError

Price = Literal["full", "fractional"]

COUNTERS = (
    "rollouts",  # charged runs of the whole program
    "failed_rollouts",  # runs lost to the infrastructure, retries included; never charged
    "node_calls",  # predictor calls that were executed
    "cached_node_calls",  # predictor calls answered by the replay cache
    "probe_calls",  # single-role calls outside a rollout
    "judge_calls",
    "rewrite_calls",  # every optimizer-model call that writes text: proposers, reflectors, rewriters
    "parse_failures",  # optimizer-model replies that could not be used
)


class BudgetLedger:
    """Counts and caps the rollouts of one optimization; safe under threads.

    `rollouts`: the cap, whole rollouts. `max_usd`: cap on the money of task and optimizer model together, None for
    none. `price`: "full" charges 1 per rollout; "fractional" charges executed nodes / nodes of a full run, so that
    partial re-execution is credited. Counters are in `counts`; `spent` is what the cap is compared with.
    """

    def __init__(
        self, rollouts: int, *, max_usd: float | None = None, price: Price = "full", later_rollouts: int = 0
    ) -> None:
        if rollouts < 0:
            raise ConfigurationError(f"a budget cannot be negative: {rollouts}")
        self.limit = int(rollouts)
        self.max_usd = max_usd
        self.price: Price = price
        self.later_rollouts = later_rollouts
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._usd = Fraction(0)  # exact, so that the order of threads does not show
        self._run_usd = Fraction(0)  # what the runs so far would have cost without the replay cache
        self._priced_runs = 0
        self.cut_by_money = False
        self.unpriced_calls = 0
        self._spent = Fraction(0)
        self._reserved = 0
        self._lock = threading.Lock()

    @property
    def spent(self) -> float:
        """Charged rollouts so far, in units of one full rollout."""
        return float(self._spent)

    @property
    def remaining(self) -> int:
        """Whole rollouts that can still be reserved; 0 when the money is used up."""
        with self._lock:
            return self._free()

    @property
    def usd(self) -> float:
        """Dollars booked so far, as far as prices are known."""
        return float(self._usd)

    @property
    def out_of_money(self) -> bool:
        """Not one more rollout can be paid for, with what validation and test will take kept back."""
        return self._affordable() < 1

    def _affordable(self) -> float:
        """Rollouts that the money is enough for, at the average price of the runs so far; infinite without a cap."""
        if self.max_usd is None:
            return math.inf
        left = Fraction(self.max_usd) - self._usd
        if not self._priced_runs or not self._run_usd:
            return math.inf if left > 0 else 0
        return math.floor(left * self._priced_runs / self._run_usd) - self.later_rollouts

    def _free(self) -> int:
        """Whole rollouts that neither the budget nor the money forbids; call with the lock held."""
        by_budget = max(0, int(self.limit - self._spent) - self._reserved)
        by_money = max(0, self._affordable() - self._reserved)
        return int(min(by_budget, by_money))

    def _cut(self, n: int) -> None:
        """Note why fewer than `n` rollouts are granted."""
        self.cut_by_money |= n <= int(self.limit - self._spent) - self._reserved

    def reserve(self, n: int) -> int:
        """Set up to `n` rollouts aside before they are dispatched; returns how many were granted (0..n)."""
        if n < 0:
            raise ValueError(f"cannot reserve {n} rollouts")
        with self._lock:
            granted = min(n, self._free())
            if granted < n:
                self._cut(n)
            self._reserved += granted
            return granted

    def try_charge(self, n: int) -> bool:
        """Reserve all `n` rollouts or none; settle them with `settle`."""
        with self._lock:
            if n > self._free():
                self._cut(n)
                return False
            self._reserved += n
            return True

    def settle(self, reserved: int, used: int | Fraction) -> None:
        """Close a reservation: `used` is charged (at most what was reserved), the rest is given back."""
        with self._lock:
            if reserved > self._reserved or used > reserved or used < 0:
                raise ValueError(f"cannot settle {used} of {reserved} rollouts, {self._reserved} are reserved")
            self._reserved -= reserved
            self._spent += used

    def count(self, counter: str, n: int = 1) -> None:
        """Add to one of `COUNTERS`."""
        if counter not in COUNTERS:
            raise KeyError(f"unknown counter {counter!r}; there are {', '.join(COUNTERS)}")
        with self._lock:
            self.counts[counter] += n

    def pay(self, usd: float | None, calls: int = 1) -> None:
        """Book the price of `calls` model calls; None means that it is unknown: counted, never taken for 0."""
        with self._lock:
            if usd is None:
                self.unpriced_calls += calls
            else:
                self._usd += Fraction(usd)

    def price_run(self, usd: float | None) -> None:
        """Learn what one whole run costs when nothing is cached; decides how many more the money is enough for."""
        if usd is not None:
            with self._lock:
                self._run_usd += Fraction(usd)
                self._priced_runs += 1

    def snapshot(self) -> dict[str, Any]:
        """JSON-safe state for logs and results."""
        with self._lock:
            return {
                "limit": self.limit,
                "spent": float(self._spent),
                "price": self.price,
                **{name: self.counts[name] for name in COUNTERS},
            }
