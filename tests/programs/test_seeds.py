"""Seeds are the same on every machine, and differ between agents, rounds and attempts."""

from __future__ import annotations

import itertools

from programs.seeds import call_seed, stable_hash


def test_hashes_are_fixed_for_ever():
    assert stable_hash("question", "Who?") == 3760390474476084976
    assert stable_hash({"b": 1, "a": 2}) == stable_hash({"a": 2, "b": 1})
    assert stable_hash("a", "b") != stable_hash("ab")
    assert 0 <= stable_hash("x") < 2**63
    assert stable_hash("\ud800") == stable_hash("\ud800")


def test_every_agent_round_and_attempt_has_its_own_seed():
    seeds = [call_seed(1, *key) for key in itertools.product(("solver", "checker"), range(5), (1, 2), (1, 2, 3))]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
