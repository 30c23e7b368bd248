"""Jobs on the simulated chain world, for tests of the protocol."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from metrics.example import QuestionExample
from optimize.job import Job
from optimize.methods import method_class
from optimize.scoring import TaskScoring
from tests.support.rules import Chain, RuleEngine, sim_lm


@dataclass
class SimTask:
    """Rows of the chain world as a task; `strict` also needs the word ok in the message."""

    examples: list
    name: str = "sim"
    scoring: str = "exact"
    primary: str = "correct"
    config: dict = field(default_factory=lambda: {"split_conformant": False})

    def score(self, example, final_text, answer, last_tool_result):
        right = answer == example.gold
        return {"correct": right, "strict_correct": right, "predicted_answer": answer}


def sim_splits(train=12, validation=9, test=9, gold="right"):
    starts = {"train": 0, "validation": 300, "test": 600}
    sizes = {"train": train, "validation": validation, "test": test}
    return {
        name: SimTask(
            [
                QuestionExample(gold=gold if isinstance(gold, str) else gold(name, i), id=f"{name}-{i}",
                                question=f"question {start + i}", meta={}).with_inputs("question")
                for i in range(sizes[name])
            ]
        )
        for name, start in starts.items()
    }  # fmt: skip


def sim_job(method="gepa", *, engine=None, optimizer=None, program=None, budget=90, seed=0, splits=None, scoring=None,
            options=None, **changes):  # fmt: skip
    """A job whose models are simulated. `optimizer`: an engine of its own for the reflection model."""
    engine = engine or RuleEngine()
    splits = splits or sim_splits()
    program = program or Chain()
    lm = sim_lm(engine)
    settings = {
        "method": method, "options": options or {}, "feedback": changes.get("feedback", "plain"), "budget": budget,
        "seed": seed, "metric": "official", "scoring": "exact", "dataset": "sim",
        "program": "tests.support.rules:Chain", "team_size": None, "rounds": None, "communication": None,
        "tool_calling": None, "prompts": None, "scenario": None,
        "model": "sim/rules", "models": {"default": "sim/rules"}, "reflection_model": "sim/rules", "embedded": False,
        "decoding": None, "data": {"splits_hash": "sim", "split_conformant": False},
    }  # fmt: skip
    cls = method_class(method)
    feedback = changes.get("feedback", "plain")
    return Job(
        settings=settings,
        program=program,
        splits=splits,
        scoring=scoring or TaskScoring(splits["train"]),
        method=cls(seed=seed, final_gate=False, feedback=feedback, **(options or {})),
        lm=lm,
        optimizer_lm=sim_lm(optimizer) if optimizer else lm,
        budget=budget,
        seed=seed,
        pauses=(0.0, 0.0),
        **{"threads": 4, **changes},
    )


TIMES = {"wall_s"}


def folder_contents(path):
    """Every file of a job's folder, JSON documents without times."""
    found = {}
    for file in sorted(path.rglob("*")):
        if not file.is_file() or file.name == ".lock":
            continue
        name = str(file.relative_to(path))
        if file.suffix == ".json":
            found[name] = _without_times(json.loads(file.read_text()))
        else:
            found[name] = file.read_text()
    return found


def _without_times(value):
    if isinstance(value, dict):
        return {k: _without_times(v) for k, v in value.items() if k not in TIMES}
    return [_without_times(v) for v in value] if isinstance(value, list) else value
