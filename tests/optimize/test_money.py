"""Money: counted once, shared with validation and test, never exceeded by more than what was in flight."""

from __future__ import annotations

import json

import dspy
import pytest

from metrics.errors import ConfigurationError
from optimize.phases import run_job
from tests.optimize.jobs import sim_job
from tests.support.rules import RuleEngine, sim_lm

PRICE = 0.001


class PricedLM(dspy.LM):
    """Reports a price per call to the usage meter, as the models of the command line do."""

    def __call__(self, prompt=None, *, messages=None, **kwargs):
        meter = dspy.settings.get("usage_meter")
        with dspy.context(usage_tracker=None):
            outputs = super().__call__(prompt, messages=messages, **kwargs)
        if meter is not None:
            agent = dspy.settings.get("agent") or {}
            meter.record_call(
                role=agent.get("role"),
                model=self.model,
                prompt_tokens=10,
                completion_tokens=5,
                cached=False,
                cost=PRICE,
            )
        return outputs


def priced_job(engine, **changes):
    job = sim_job("gepa", engine=engine, **changes)
    job.lm = job.optimizer_lm = PricedLM("sim/priced", engine=engine, cache=False, num_retries=0)
    return job


def test_every_call_is_priced_once_and_split_by_who_made_it(tmp_path):
    engine = RuleEngine()
    result = run_job(priced_job(engine), tmp_path)
    usage = result["usage_total"]
    assert usage["usd_billed"] == pytest.approx(PRICE * engine.calls)
    assert usage["lm_calls"] - usage["cached_lm_calls"] == engine.calls
    assert usage["usd_without_cache"] == pytest.approx(PRICE * usage["lm_calls"])
    assert result["usage"]["optimizer_model"]["by_role"].keys() == {"rewrite"}
    assert {"first", "middle", "last"} <= set(result["usage"]["search"]["by_role"])


def test_a_cap_ends_the_search_early_and_keeps_enough_for_validation_and_test(tmp_path):
    engine = RuleEngine({"first": "[R91]", "middle": "[R02]", "last": "[R03]"}, style="random")
    job = priced_job(engine, budget=600, max_usd=0.30, threads=4)
    result = run_job(job, tmp_path)
    assert result["stop_reason"] == "money" and result["test"]["complete"]
    in_flight = PRICE * 9 * 3
    assert PRICE * engine.calls <= 0.30 + in_flight
    assert result["rollouts"] < 600


def test_a_cap_without_a_known_price_is_refused_before_the_search(tmp_path):
    engine = RuleEngine()
    with pytest.raises(ConfigurationError, match="known price"):
        run_job(sim_job("gepa", engine=engine, max_usd=1.0), tmp_path)
    assert engine.calls == 3, "the pre-flight row, nothing else"


def test_an_unknown_price_is_not_zero(tmp_path):
    result = run_job(sim_job("gepa"), tmp_path)
    assert result["usage_total"]["usd_billed"] is None
    header = json.loads((tmp_path / "program.json").read_text())["metadata"]["hopteam"]
    assert header["usd"] is None


def test_a_reflection_model_of_its_own_is_probed_once_and_used(tmp_path):
    task, optimizer = RuleEngine(), RuleEngine()
    job = sim_job("gepa", engine=task, optimizer=optimizer)
    run_job(job, tmp_path)
    assert "Reply with OK" in optimizer.texts[0]
    assert not any("new_instruction" in text for text in task.texts)
    assert any("new_instruction" in text for text in optimizer.texts[1:])
    assert sim_lm(task).model == "sim/rules"
