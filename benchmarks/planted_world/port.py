"""The fast way: the same searches without DSPy around every call.

`PortEvaluator` takes the place of `optimize.evaluation.Evaluator`, `PortContext` answers `ask` and `probe` from the
engines' own functions. Budget, replay counts, seeds, rows and feedback are those of the real way; a test runs both and
compares everything. Methods cannot tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, Literal

import dspy

from benchmarks.planted_world.engines import OptimizerEngine, TaskEngine
from benchmarks.planted_world.program import PlantedMetric, as_prediction, node_seed
from benchmarks.planted_world.texts import messages_text
from benchmarks.planted_world.topology import agent_of, role_of
from metrics.rollout import rollout_seed
from optimize.candidates import Candidate
from optimize.context import SearchContext
from optimize.ledger import BudgetLedger
from optimize.replay import BYPASS, Request
from optimize.rows import NodeCall, Row
from optimize.scoring import MetricScoring


@dataclass
class _Entry:
    """One call that was made: its note and the record of it."""

    text: str
    call: NodeCall


@dataclass
class PortEvaluator:
    """`evaluate(candidate, rows, ...)` as `optimize.evaluation.Evaluator` does it, on pure functions."""

    engine: TaskEngine
    metric: PlantedMetric
    ledger: BudgetLedger
    seed: int = 0
    phase: str = "optimize"
    train_ids: frozenset[str] = frozenset()
    lm: Any = None  # methods of DSPy want a task model to look at
    usage: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topology = self.engine.world.topology
        self.scoring = MetricScoring(self.metric)
        self._calls: dict[tuple[str, str, str, str], _Entry] = {}
        self._seeds: dict[str, int] = {}
        self._verdicts: dict[tuple[str, str], Any] = {}

    def __call__(
        self,
        candidate: Candidate,
        rows: Sequence[Any],
        *,
        active: frozenset[str] | None = None,
        want_trace: bool = True,
        charge: bool = True,
        whole: bool = False,
    ) -> list[Row]:
        """One `Row` per row that the budget allowed."""
        if dspy.settings.get(BYPASS):
            raise NotImplementedError("mask mode bypass runs on real programs only")
        n = len(rows)
        granted = n if not charge else (n * self.ledger.try_charge(n) if whole else self.ledger.reserve(n))
        done = [self._rollout(candidate, row, active, want_trace) for row in rows[:granted]]
        if charge:
            self.ledger.settle(granted, sum((_price(row, self.ledger.price) for row in done), Fraction(0)))
            self.ledger.count("rollouts", granted)
        self.ledger.count("node_calls", sum(row.node_calls for row in done))
        self.ledger.count("cached_node_calls", sum(row.replayed_calls for row in done))
        return done

    def _rollout(self, candidate: Candidate, row: Any, active: frozenset[str] | None, want_trace: bool) -> Row:
        notes: dict[str, str] = {}
        calls: list[NodeCall] = []
        executed = replayed = 0
        for member in self.topology.members:
            if active is not None and role_of(member) not in active and member not in active:
                continue
            messages = messages_text([(p, notes.get(p, "")) for p in self.topology.parents[member]])
            entry, fresh = self.call(candidate.instructions[role_of(member)], row, member, messages)
            executed += fresh
            replayed += not fresh
            notes[member] = entry.text
            calls.append(entry.call)
        prediction = as_prediction(self.topology, notes)
        verdict = self._verdict(row, prediction)
        return Row(
            example=row,
            id=row.id,
            score=verdict.score,
            feedback=verdict.feedback,
            answer=prediction.answer,
            fields=dict(verdict.fields),
            calls=calls if want_trace else [],
            node_calls=executed,
            replayed_calls=replayed,
            prediction=prediction,
        )

    def call(self, instruction: str, row: Any, member: str, messages: str) -> tuple[_Entry, bool]:
        """(a member's call, whether it had to be made)."""
        key = (instruction, row.id, member, messages)
        entry = self._calls.get(key)
        if entry is not None:
            return entry, False
        seed = node_seed(self._rollout_seed(row.id), member)
        text = self.engine.act(instruction, row.question, member, messages, seed).text
        role = role_of(member)
        inputs = {"task": row.question, "member": member, "messages": messages}
        agent = {"role": role, "index": agent_of(member), "round": 1}
        request = Request(role, inputs, {"agent": agent, "row": row})
        entry = _Entry(text, NodeCall(role, role, inputs, dspy.Prediction(note=text), request=request))
        self._calls[key] = entry
        return entry, True

    def _rollout_seed(self, row_id: str) -> int:
        if row_id not in self._seeds:
            self._seeds[row_id] = rollout_seed(self.seed, self.phase, row_id)
        return self._seeds[row_id]

    def _verdict(self, row: Any, prediction: dspy.Prediction) -> Any:
        key = (row.id, "|".join(prediction.notes.values()))
        if key not in self._verdicts:
            rollout = SimpleNamespace(prediction=prediction, row={"predicted_answer": prediction.answer})
            self._verdicts[key] = self.scoring.verdict(row, rollout, reveal_gold=row.id in self.train_ids)
        return self._verdicts[key]


def _price(row: Row, price: str) -> Fraction:
    total = row.node_calls + row.replayed_calls
    return Fraction(1) if price == "full" or total == 0 else Fraction(row.node_calls, total)


@dataclass
class PortContext(SearchContext):
    """A `SearchContext` whose single calls go straight to the simulated models."""

    engine: OptimizerEngine | None = None

    @classmethod
    def of(cls, context: SearchContext, evaluate: PortEvaluator, engine: OptimizerEngine) -> PortContext:
        known = {f.name: getattr(context, f.name) for f in fields(SearchContext)}
        return cls(**{**known, "evaluate": evaluate}, engine=engine)

    def probe(self, candidate: Candidate, call: NodeCall) -> dspy.Prediction | None:
        assert call.request is not None and isinstance(self.evaluate, PortEvaluator)
        row = call.request.settings["row"]
        text = candidate.instructions[call.predictor]
        entry, fresh = self.evaluate.call(text, row, call.inputs["member"], call.inputs["messages"])
        self.ledger.count("probe_calls", int(fresh))
        return entry.call.prediction

    def ask(
        self,
        signature: type[dspy.Signature],
        *,
        kind: Literal["rewrite", "judge"] = "rewrite",
        temperature: float | None = None,
        max_tokens: int | None = None,
        **inputs: Any,
    ) -> dspy.Prediction | None:
        assert self.engine is not None
        self.ledger.count("judge_calls" if kind == "judge" else "rewrite_calls")
        shown = {name: str(inputs[name]).strip() for name in signature.input_fields}
        values = self.engine.reply(shown, tuple(signature.output_fields))
        if values is None:
            self.ledger.count("parse_failures")
            return None
        return dspy.Prediction(**{name: text.strip() for name, text in values.items()})
