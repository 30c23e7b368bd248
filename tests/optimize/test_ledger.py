"""The budget is a hard cap at any thread count, and what the infrastructure lost is given back."""

from __future__ import annotations

import threading
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.errors import ConfigurationError
from optimize.ledger import BudgetLedger


def test_reserve_grants_what_is_left_and_try_charge_all_or_nothing():
    ledger = BudgetLedger(10)
    assert ledger.reserve(7) == 7
    assert not ledger.try_charge(4)
    assert ledger.reserve(7) == 3
    assert ledger.remaining == 0
    ledger.settle(7, 5)
    ledger.settle(3, 3)
    assert ledger.remaining == 2 and ledger.spent == 8


def test_settling_more_than_was_reserved_is_an_error():
    ledger = BudgetLedger(3)
    ledger.reserve(2)
    with pytest.raises(ValueError):
        ledger.settle(2, 3)
    with pytest.raises(ConfigurationError):
        BudgetLedger(-1)


def test_the_money_cap_grants_what_it_can_pay_for_and_unknown_prices_are_counted():
    ledger = BudgetLedger(100, max_usd=1.0, later_rollouts=3)
    ledger.pay(None, 3)
    assert ledger.remaining == 100 and ledger.unpriced_calls == 3, "no price is known yet"
    for _ in range(2):
        ledger.pay(0.125)
        ledger.price_run(0.125)
    assert ledger.remaining == 3, "0.75 dollars pay six runs, three are kept for validation and test"
    assert not ledger.try_charge(4) and ledger.cut_by_money and ledger.reserve(9) == 3
    ledger.pay(0.375)
    ledger.settle(3, 3)
    assert ledger.out_of_money and ledger.remaining == 0 and ledger.reserve(1) == 0


def test_fractional_prices_are_exact():
    ledger = BudgetLedger(2, price="fractional")
    for _ in range(3):
        assert ledger.reserve(1) == 1
        ledger.settle(1, Fraction(1, 3))
    assert ledger.spent == 1.0 and ledger.remaining == 1


@settings(max_examples=30, deadline=None)
@given(
    limit=st.integers(0, 40),
    batches=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12),
    threads=st.sampled_from([1, 4]),
)
def test_no_interleaving_of_threads_exceeds_the_cap(limit, batches, threads):
    ledger = BudgetLedger(limit)
    running, peak, lock = [0], [0], threading.Lock()

    def spend(mine):
        for wanted, failed in mine:
            granted = ledger.reserve(wanted)
            with lock:
                running[0] += granted
                peak[0] = max(peak[0], running[0])
            used = max(0, granted - failed)
            with lock:
                running[0] -= granted - used
            ledger.settle(granted, used)

    workers = [threading.Thread(target=spend, args=(batches[i::threads],)) for i in range(threads)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    assert peak[0] <= limit and ledger.spent <= limit
    assert ledger.remaining == limit - int(ledger.spent)
