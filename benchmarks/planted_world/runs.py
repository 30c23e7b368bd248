"""One run: one method on one world under one budget, and what came of it in numbers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import dspy

from benchmarks.planted_world.baselines import BASELINES
from benchmarks.planted_world.engines import OptimizerEngine, TaskEngine, make_lm
from benchmarks.planted_world.judge import Judge
from benchmarks.planted_world.port import PortContext, PortEvaluator
from benchmarks.planted_world.program import PlantedMetric, PlantedTeam, make_rows, make_team
from benchmarks.planted_world.rewriter import Rewriter
from benchmarks.planted_world.settings import ENTRIES, Setting
from benchmarks.planted_world.texts import rules_of
from benchmarks.planted_world.world import World, make_world
from metrics.errors import ConfigurationError
from optimize.candidates import Candidate
from optimize.context import SearchContext
from optimize.evaluation import Evaluator
from optimize.methods import method_class
from optimize.methods.base import Method
from optimize.replay import ReplayCache
from optimize.rows import as_rows, mean_score
from optimize.search import run_search

SAME = 1e-9


def make_method(entry: str, **common: Any) -> Method:
    """A method by its name in a table."""
    if entry not in ENTRIES:
        raise ConfigurationError(f"unknown method {entry!r}; there are {', '.join(ENTRIES)}")
    name, options = ENTRIES[entry]
    cls = BASELINES[name] if name in BASELINES else method_class(name)
    return cls(**{**common, **options})


@lru_cache(maxsize=64)
def _world(landscape: str, shape: str, seed: int, eta: float, weak: str | None) -> tuple[World, PlantedTeam]:
    """A world and its program, shared by the methods that run on it."""
    world = make_world(landscape, shape, seed, eta=eta, weak=weak)
    return world, make_team(world)


class Run:
    """A search on a world: `context`, and after `search()` the `incumbent` and the `deployed` candidate."""

    def __init__(self, setting: Setting) -> None:
        self.setting = s = setting
        self.world, self.team = _world(s.landscape, s.topology, s.seed, s.eta, s.weak)
        train, validation = map(as_rows, make_rows(self.world))
        self.task = TaskEngine(self.world)
        judge = Judge(self.world, s.noise, s.bias)
        self.optimizer = OptimizerEngine(self.world, Rewriter(s.skill, s.rewriter), judge)
        self.metric = PlantedMetric(self.world, s.rho)
        self.task_lm = make_lm(self.task)
        self.method = make_method(
            s.entry,
            metric=self.metric,
            prompt_model=make_lm(self.optimizer),
            max_rollouts=s.budget,
            seed=s.seed,
            num_threads=1,
        )
        self.context: SearchContext = self.method._context(self.team, train, validation)
        if s.way == "port":
            evaluate = self._port(self.context.evaluate.phase, self.context.evaluate.train_ids)
            self.context = PortContext.of(self.context, evaluate, self.optimizer)
        self.incumbent = self.deployed = self.context.baseline

    def _port(self, phase: str, train_ids: frozenset[str] = frozenset()) -> PortEvaluator:
        s = self.setting
        return PortEvaluator(self.task, self.metric, self.context.ledger, s.seed, phase, train_ids, self.task_lm)

    def search(self) -> None:
        """Search, then the gate: the incumbent is deployed when it is strictly better on all validation rows."""
        with self._models():
            self.incumbent = self.deployed = run_search(self.method, self.context)
            self.spent = self.context.ledger.snapshot()
            if self.incumbent.id != self.context.baseline.id:
                before, after = map(self._validate(), (self.context.baseline, self.incumbent))
                self.deployed = self.incumbent if after > before else self.context.baseline

    def _validate(self) -> Callable[[Candidate], float]:
        search, rows = self.context.evaluate, self.context.validation
        evaluate: Any = self._port("validate")
        if isinstance(search, Evaluator):
            evaluate = Evaluator(
                program=search.program,
                scoring=search.scoring,
                ledger=search.ledger,
                roles=search.roles,
                phase="validate",
                seed=search.seed,
                threads=search.threads,
                replay=ReplayCache(),
            )
        return lambda candidate: mean_score(evaluate(candidate, rows, want_trace=False, charge=False)) or 0.0

    def _models(self) -> AbstractContextManager[Any]:
        adapter = dspy.ChatAdapter(use_json_adapter_fallback=False)
        return nullcontext() if self.setting.way == "port" else dspy.context(lm=self.task_lm, adapter=adapter)

    # -- what came of it ---------------------------------------------------------------------------

    def true(self, candidate: Candidate) -> float:
        """The true score of a candidate."""
        if candidate.id not in self._true:
            rules = {role: rules_of(text) for role, text in candidate.instructions.items()}
            self._true[candidate.id] = self.world.true_score(rules)
        return self._true[candidate.id]

    _true: dict[str, float]

    def result(self, seconds: float) -> dict[str, Any]:
        """The numbers of the run, JSON-safe."""
        self._true = {}
        world, log, budget = self.world, self.context.log, self.setting.budget
        curve = [(spent, self.true(log.candidates[name])) for spent, _, name in log.curve]
        optimum, start = world.optimum, self.true(self.context.baseline)
        final = self.true(self.deployed)
        return {
            "start_true": start,
            "optimum": optimum,
            "final_true": final,
            "solved": final >= optimum - SAME and optimum > start,
            "to_optimum": _first(curve, optimum - SAME) if optimum > start else None,
            "to_95": _first(curve, 0.95 * optimum) if optimum > start else None,
            "area": _area(curve, start, budget) / optimum,
            "curve": [[spent, round(true, 6)] for spent, true in curve],
            "changed_in_search": self.incumbent.id != self.context.baseline.id,
            "deployed_changed": self.deployed.id != self.context.baseline.id,
            "gate_regret": self.true(self.incumbent) - final,
            "spent": self.spent["spent"],
            **{
                name: self.spent[name]
                for name in ("node_calls", "cached_node_calls", "probe_calls", "judge_calls", "rewrite_calls")
            },
            "parse_failures": self.spent["parse_failures"],
            "proposals": log.tried,
            "accepted": log.accepted,
            "stop_reason": log.stop_reason,
            "deployed": {role: list(rules_of(t)) for role, t in self.deployed.instructions.items()},
            "seconds": round(seconds, 3),
            **self._about_landscape(),
        }

    def _about_landscape(self) -> dict[str, Any]:
        """TRAP: where the decoy came to; WEAKLINK: which role was chosen first, and improved first."""
        log, world = self.context.log, self.world
        if world.landscape == "TRAP" and world.decoy:
            anchor = log.extra.get("anchor", {}).get("instructions", self.incumbent.instructions)
            adopted = {
                "search": anchor,
                "incumbent": self.incumbent.instructions,
                "deployed": self.deployed.instructions,
            }
            found = {name: world.trapped(rules_of(texts[world.decoy])) for name, texts in adopted.items()}
            seen = [rules_of(c.instructions[world.decoy]) for c in log.candidates.values()]
            return {"decoy": {**found, "proposed": any(map(world.trapped, seen))}}
        if world.landscape == "WEAKLINK":
            chosen = (event["role"] for event in log.history if event["event"] == "bottleneck")
            kept = (self._changed(event) for event in log.history if event["event"] == "accepted")
            return {"weak": world.weak, "first_chosen": next(chosen, None), "first_updated": next(kept, None)}
        return {}

    def _changed(self, event: Mapping[str, Any]) -> str:
        changed = self.context.log.candidates[event["candidate"]].changed_from(self.context.baseline)
        return "+".join(changed)


def _first(curve: list[tuple[float, float]], least: float) -> float | None:
    """Rollouts spent when a committed incumbent first had a true score of `least`."""
    return next((spent for spent, true in curve if true >= least), None)


def _area(curve: list[tuple[float, float]], start: float, budget: int) -> float:
    """Mean over the budget of the true score of the incumbent."""
    total, at, level = 0.0, 0.0, start
    for spent, true in curve:
        total += (spent - at) * level
        at, level = spent, true
    return (total + (budget - at) * level) / budget


def run(setting: Setting) -> dict[str, Any]:
    """Run one setting."""
    logging.getLogger("optimize").setLevel(logging.ERROR)
    one = Run(setting)
    began = time.perf_counter()
    one.search()
    return one.result(time.perf_counter() - began)
