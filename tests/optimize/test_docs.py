"""What docs/optimization.md says is true: its example method works, its commands and flags exist."""

from __future__ import annotations

import re
from pathlib import Path

import dspy
import pytest

from optimize.methods import METHODS, method_class
from optimize.options import build_parser
from optimize.phases import search_context
from programs import build_program
from tests.optimize.jobs import sim_job, sim_splits
from tests.support.rules import Chain, CountingMetric, RuleEngine, questions, sim_lm

TEXT = (Path(__file__).parents[2] / "docs/optimization.md").read_text(encoding="utf-8")


def test_the_example_method_improves_a_program_inside_its_budget():
    source = next(block for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "class RandomRole" in block)
    names = {}
    exec(compile(source, "docs/optimization.md", "exec"), names)
    engine = RuleEngine()
    with dspy.context(lm=sim_lm(engine)):
        method = names["RandomRole"](CountingMetric(), max_rollouts=150)
        result = method.compile(Chain(), trainset=questions(12), valset=questions(9, 300))
    stats = result.optimizer_stats
    assert stats["best_score"] > stats["seed_score"] and stats["counters"]["rollouts"] <= 150


def test_every_flag_in_the_text_exists():
    known = set(build_parser()._option_string_actions)
    other = {"--load", "--list", "--jobs", "--family", "--limit"}  # of eval.py, the grid and the aggregate
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT)) <= known | other


@pytest.mark.parametrize("name", list(METHODS))
def test_the_least_budget_in_the_table_is_the_least_that_is_taken(name):
    row = next(line for line in TEXT.splitlines() if line.startswith(f"| `{name}` |"))
    least = int(re.match(r"\d+", row.split("|")[3].strip())[0])
    program, splits = build_program("sequential"), sim_splits(100, 50, 9)
    for budget in (least - 1, least):
        job = sim_job(name, program=program, splits=splits, budget=budget)
        assert (job.method.minimum_budget(search_context(job)) <= budget) == (budget == least)


def test_the_classes_in_the_text_are_those_of_the_package():
    assert all(f"`{method_class(name).__name__}`" in TEXT for name in METHODS)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_can_be_loaded_and_is_named_in_the_text(name):
    assert method_class(name).name == name and f"`{name}`" in TEXT
