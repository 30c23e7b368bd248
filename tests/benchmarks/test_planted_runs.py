"""Runs of the planted benchmark: budgets, true scores, determinism; the fast way and real programs agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.planted_world.runs import Run, make_method, run
from benchmarks.planted_world.settings import CELLS, ENTRIES, METHODS, Setting, quick, standard
from benchmarks.planted_world.texts import rules_of
from metrics.errors import ConfigurationError

CHANCE = {"AND": 0.1}  # so that seeds matter as well


def both_ways(setting):
    found = []
    for way in ("port", "dspy"):
        one = Run(replace(setting, way=way))
        one.search()
        found.append((one.result(0.0), one.context.log.history, one.deployed))
    return found


@pytest.mark.parametrize(
    ("landscape", "shape", "entry"),
    [
        ("HANDOFF", "chain2", "mapro"),
        ("AND", "replicas", "mapro-paper"),
        ("TRAP", "chain3", "maspo"),
        ("AND", "chain2", "maspo-fractional"),
        ("WEAKLINK", "star", "hivemind"),
        ("NOISE", "chain2", "gepa-blame"),
        ("XOR", "chain2", "gepa"),
        ("STYLE", "chain2", "mipro"),
        ("AND", "skip", "blamed"),
        ("REDUNDANT", "diamond", "random"),
    ],
)
def test_the_fast_way_and_real_programs_agree_in_every_event_and_count(landscape, shape, entry):
    setting = Setting(landscape, shape, entry, 1, budget=75, eta=CHANCE.get(landscape, 0.0))
    fast, real = both_ways(setting)
    assert fast == real
    assert fast[0]["spent"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("entry", [name for name in ENTRIES if name not in METHODS])
def test_they_agree_for_every_entry(entry):
    fast, real = both_ways(Setting("HANDOFF", "chain2", entry, 2, budget=90))
    assert fast == real


@pytest.mark.parametrize("entry", METHODS)
def test_a_run_keeps_its_budget_repeats_exactly_and_reports_the_truth(entry):
    setting = Setting("AND", "chain3", entry, 3, budget=130)
    one = Run(setting)
    one.search()
    result = one.result(0.0)
    assert result == {**run(setting), "seconds": 0.0} and run(replace(setting, seed=4))["curve"] != result["curve"]
    assert 0 < result["spent"] <= 130 and result["node_calls"] > 0
    rules = {role: rules_of(text) for role, text in one.deployed.instructions.items()}
    assert result["final_true"] == one.world.true_score(rules) and result["deployed"] == {
        r: list(k) for r, k in rules.items()
    }
    assert result["solved"] == (result["final_true"] == 1.0)
    assert result["start_true"] <= result["final_true"], "the gate lets nothing worse through here"
    if result["solved"]:
        assert result["to_95"] <= result["to_optimum"] <= result["spent"]
    assert result["start_true"] <= result["area"] <= 1 and result["curve"][0][1] == pytest.approx(result["start_true"])


def test_the_start_is_left_alone_by_rewriters_that_are_no_use():
    for rewriter in ("worse", "lazy", "garbage", "breaking"):
        for entry in set(METHODS) - {"hivemind" if rewriter == "breaking" else ""}:  # lessons break no contract
            result = run(Setting("AND", "chain2", entry, 0, budget=80, rewriter=rewriter))
            assert not result["deployed_changed"] and result["final_true"] == result["start_true"], (rewriter, entry)


def test_what_a_landscape_is_there_to_show():
    trap = run(Setting("TRAP", "chain3", "maspo-local", 1, budget=600))
    assert set(trap["decoy"]) == {"search", "incumbent", "deployed", "proposed"} and not trap["decoy"]["deployed"]
    weak = run(Setting("WEAKLINK", "star", "hivemind", 0, budget=300))
    assert weak["first_chosen"] == weak["weak"]
    flat = run(Setting("FLAT", "chain4", "random", 0, budget=300))
    assert not flat["changed_in_search"] and not flat["solved"] and flat["to_optimum"] is None
    noise = [run(Setting("NOISE", "chain2", "random", seed, budget=200)) for seed in range(3)]
    assert any(result["changed_in_search"] for result in noise)


def test_the_grids():
    grid = standard(range(2))
    assert len(grid) == len(set(grid)) and {(s.landscape, s.topology) for s in grid} >= set(CELLS)
    for landscape, shape in CELLS:
        found = {s.entry for s in grid if (s.landscape, s.topology) == (landscape, shape)}
        assert found >= set(METHODS)
    assert set(quick(range(2))) <= set(standard(range(2)))
    assert len({s.key() for s in grid}) == len(grid)
    with pytest.raises(ConfigurationError, match="unknown method"):
        make_method("magic")
