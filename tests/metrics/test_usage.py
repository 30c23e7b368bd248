from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest

from metrics.rollout import run_rollout
from metrics.summary import summarize_rows
from metrics.usage import UsageMeter, merge_usage, sum_money
from tests.support.runs import PlainTeam, ScriptedEngine, WordTask, scripted_lm


def record(meter, **values):
    meter.record_call(
        **{"role": "solver", "index": 0, "model": "m", "prompt_tokens": 100, "completion_tokens": 10, **values}
    )


def test_billed_and_would_have_cost_are_apart():
    meter = UsageMeter()
    record(meter, cost=0.02, cached=False)
    record(meter, cost=0.03, cached=True)
    totals = meter.totals()
    assert totals["usd_billed"] == 0.02 and totals["usd_without_cache"] == 0.05
    assert (totals["lm_calls"], totals["cached_lm_calls"], totals["prompt_tokens"]) == (2, 1, 200)


def test_an_unknown_price_is_none_and_never_zero():
    meter = UsageMeter()
    record(meter, cost=None, cached=True)
    assert meter.totals()["usd_billed"] == 0.0, "a cache hit costs nothing whatever the price"
    assert meter.totals()["usd_without_cache"] is None
    record(meter, cost=None, cached=False)
    assert meter.totals()["usd_billed"] is None
    assert UsageMeter().totals()["usd_billed"] == 0.0, "no call costs nothing"


def test_totals_equal_the_sum_of_roles_at_any_thread_count():
    def fill(threads):
        meter = UsageMeter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda i: record(meter, role=f"r{i % 3}", cost=0.1 * (i % 7)), range(300)))
        return meter

    one, eight = fill(1), fill(8)
    assert one.by_role() == eight.by_role() and one.totals() == eight.totals()
    for key in ("lm_calls", "prompt_tokens", "usd_billed"):
        assert sum(part[key] for part in one.by_role().values()) == pytest.approx(one.totals()[key])
    assert merge_usage([one.by_role(), eight.by_role()])["r0"]["lm_calls"] == 200


def test_money_sums_are_exact_in_any_order():
    amounts = [0.1] * 10 + [1e-9, 1e6]
    assert sum_money(amounts) == sum_money(reversed(amounts))


def test_a_copy_of_the_meter_is_the_meter():
    meter = UsageMeter()
    assert copy.deepcopy(meter) is meter, "DSPy copies usage trackers into its worker threads"


def test_it_is_a_dspy_usage_tracker_too():
    meter = UsageMeter()
    with dspy.context(lm=scripted_lm(), usage_tracker=meter):
        dspy.Predict("question -> answer")(question="word 1")
    assert meter.totals()["prompt_tokens"] == 10 and meter.totals()["lm_calls"] == 1


def test_a_model_that_reports_itself_is_not_counted_twice():
    from programs.lms import TeamLM

    task = WordTask(1)
    lm = TeamLM("scripted/words", engine=ScriptedEngine(), cache=False)
    with dspy.context(lm=lm):
        row = run_rollout(PlainTeam(), task.examples[0], task.score, seed=0, phase="x").row
    assert (row["n_lm_calls"], row["prompt_tokens"], row["completion_tokens"]) == (1, 10, 3)


def test_cache_hits_are_counted_apart_and_cost_nothing(tmp_path):
    from programs.lms import TeamLM

    old = dspy.cache
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    try:
        task, engine = WordTask(5), ScriptedEngine()
        lm = TeamLM("scripted/cached", engine=engine, cache=True)
        with dspy.context(lm=lm):
            runs = [
                [run_rollout(PlainTeam(), e, task.score, seed=0, phase="x").row for e in task.examples]
                for _ in range(2)
            ]
    finally:
        dspy.cache = old
    assert len(engine.requests) == 5, "the second run asks nobody"
    first, second = (summarize_rows(rows, primary="correct") for rows in runs)
    assert (first["cached_lm_calls"], second["cached_lm_calls"]) == (0, 5)
    assert first["prompt_tokens"] == second["prompt_tokens"] == 50
    assert first["usd_billed"] is None and second["usd_billed"] == 0.0
    assert second["usd_without_cache"] is None, "no price is known for this model"
    assert [row["predicted_answer"] for row in runs[0]] == [row["predicted_answer"] for row in runs[1]]
