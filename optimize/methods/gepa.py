"""`gepa`: reflective evolution of one role at a time (arXiv 2507.19457), on the `gepa` engine that DSPy uses.

The engine and DSPy's instruction proposer are used as they are. What differs from `dspy.GEPA` is the adapter between
them: rollouts are reserved in the ledger (the engine alone overshoots by up to |val| + 2 minibatches), traces are
mapped to roles by predictor identity (DSPy compares signatures), lost rows invalidate a step instead of scoring 0,
unchanged or broken proposals cost nothing, and feedback can follow the role graph.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import dspy

from optimize.candidates import Candidate
from optimize.clip import clip_values
from optimize.context import SearchContext
from optimize.feedback import feedback_for
from optimize.guard import problem_with
from optimize.jsonable import jsonable
from optimize.methods.base import Method
from optimize.methods.presets import check_at_least, check_choice
from optimize.rows import Row, mean_score
from optimize.seeds import teleprompter_seed
from optimize.stops import BugFound, StopSearch

PATIENCE = 10  # steps in a row without a proposal: the search cannot get going


class InvalidStep(Exception):
    """This step can make no proposal, or its comparison is incomplete: the engine skips it."""


class GEPA(Method):
    """`minibatch`: training rows per reflection; `component`: `round_robin` (one role per step) or `all`; `use_merge`:
    combine candidates that improved different roles.
    """

    name: ClassVar[str] = "gepa"

    def __init__(
        self,
        metric: Any = None,
        *,
        minibatch: int = 3,
        component: str = "round_robin",
        use_merge: bool = True,
        **common: Any,
    ) -> None:
        super().__init__(metric, **common)
        check_choice("component", component, ("round_robin", "all"))
        check_at_least(1, minibatch=minibatch)
        self.minibatch = minibatch
        self.component = component
        self.use_merge = use_merge

    def minimum_budget(self, context: SearchContext) -> int:
        return len(context.validation) + 2 * self.minibatch

    def advised_budget(self, context: SearchContext) -> int:
        return len(context.validation) + 3 * (2 * self.minibatch + len(context.validation))

    def expected_calls(self, context: SearchContext) -> int:
        left = context.ledger.limit - len(context.validation)
        return max(0, left // (2 * self.minibatch + len(context.validation) // 3))

    def run(self, context: SearchContext) -> Candidate:
        from gepa import optimize

        if context.feedback != "plain":
            context.ensure_graph()
        seed = teleprompter_seed(context.seed, self.name)
        adapter = _Adapter(context, random.Random(seed))
        optimize(
            seed_candidate=dict(context.baseline.instructions),
            trainset=context.train,
            valset=context.validation,
            adapter=adapter,  # type: ignore[arg-type]
            reflection_minibatch_size=min(self.minibatch, len(context.train)),
            module_selector=self.component,
            use_merge=self.use_merge,
            max_merge_invocations=5,
            stop_callbacks=[adapter.should_stop],  # type: ignore[list-item]
            callbacks=[_Observer(context, adapter)],  # type: ignore[list-item]
            logger=_Silent(),
            seed=seed,
            display_progress_bar=False,
            raise_on_exception=False,
        )
        return context.log.incumbent


class _Adapter:
    """Between the engine and the ledger. Implements `gepa.GEPAAdapter`."""

    def __init__(self, context: SearchContext, rng: random.Random) -> None:
        from dspy.teleprompt.gepa.instruction_proposal import InstructionProposer

        self.context = context
        self.rng = rng
        self.proposer = InstructionProposer()
        self.train_ids = frozenset(str(row.id) for row in context.train)
        self.validation_ids = [str(row.id) for row in context.validation]
        self.parent: Candidate = context.baseline
        self.last: Candidate | None = None  # the proposal that the engine decides on next
        self.skipped_in_a_row = 0

    def should_stop(self, state: Any) -> bool:
        """Nothing left to spend, or nothing left to gain: an incumbent with full validation score cannot be beaten."""
        log = self.context.log
        if log.best_score is not None and log.best_score >= 1:
            log.stop_reason = "perfect"
            return True
        if self.skipped_in_a_row >= PATIENCE:
            log.stop_reason = "no proposal possible"
            return True
        return self.context.ledger.remaining == 0

    def evaluate(self, batch: list[Any], candidate: Mapping[str, str], capture_traces: bool = False) -> Any:
        """Run a batch, all of it or nothing: half of a comparison decides nothing."""
        from gepa import EvaluationBatch

        texts = self.context.baseline.with_instructions(candidate)
        rows = self.context.trial_rows(texts, batch, self._split(batch), want_trace=capture_traces)
        if not rows:
            raise StopSearch("budget")
        if mean_score(rows, len(batch)) is None:
            if texts.id == self.context.baseline.id and [str(row.id) for row in batch] == self.validation_ids:
                raise StopSearch("infrastructure")  # the engine cannot start without the baseline's scores
            raise InvalidStep(f"{sum(not row.usable for row in rows)} of {len(rows)} rows were lost")
        return EvaluationBatch(
            outputs=[row.answer for row in rows],
            scores=[row.score or 0.0 for row in rows],
            trajectories=rows if capture_traces else None,
        )

    def _split(self, batch: Sequence[Any]) -> str:
        """Which rows these are. (The engine asks for traces of validation rows too.)"""
        ids = [str(row.id) for row in batch]
        return "train" if self.train_ids.issuperset(ids) and ids != self.validation_ids else "validation"

    def make_reflective_dataset(
        self, candidate: Mapping[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """Per predictor: what it read, what it wrote, and the feedback for its role, for each row of the minibatch."""
        self.parent = self.context.baseline.with_instructions(candidate)
        dataset: dict[str, list[dict[str, Any]]] = {}
        for name in components_to_update:
            role = self.context.roles.role_of(name)
            rows = [row for row in eval_batch.trajectories if row.id in self.train_ids]  # others are not to be shown
            records = [record for row in rows if (record := self._record(row, name, role))]
            if records:
                dataset[name] = records
        if not dataset:
            self.skipped_in_a_row += 1
            self.context.log.skipped("no run had a readable reply of the role to reflect on")
            raise InvalidStep("nothing to reflect on")  # the engine goes on without a word
        self.skipped_in_a_row = 0
        return dataset

    def _record(self, row: Row, predictor: str, role: str) -> dict[str, Any] | None:
        calls = [call for call in row.calls if call.predictor == predictor and not call.masked]
        if not calls:
            return None
        call = self.rng.choice(calls)
        return {
            "Inputs": clip_values(jsonable(dict(call.inputs))),
            "Generated Outputs": clip_values(jsonable(call.prediction)),
            "Feedback": feedback_for(self.context, row, role),
        }

    def propose_new_texts(
        self,
        candidate: Mapping[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        """New instructions by DSPy's proposer; what is unreadable, unchanged or breaks the contract is left out."""
        context = self.context
        texts: dict[str, str] = {}
        model = context.prompt_model.copy(temperature=1.0)
        for name in components_to_update:
            if name not in reflective_dataset:
                continue
            with dspy.context(lm=model, trace=None):
                try:
                    proposal = self.proposer(dict(candidate), dict(reflective_dataset), [name]).get(name)
                except (dspy.utils.exceptions.AdapterParseError, dspy.LMError, ValueError):
                    proposal = None  # not readable, or empty
                    context.ledger.count("parse_failures")
            problem = "unreadable" if proposal is None else problem_with(proposal, context.baseline.instructions[name])
            if problem is None and proposal.strip() == candidate[name].strip():
                problem = "unchanged"
            if problem is None:
                texts[name] = proposal
            else:
                context.log.refused(name, problem)
        if texts:
            self.last = self.parent.with_instructions(texts)
            context.log.proposed(self.last, origin="reflection", parent=self.parent)
        return texts


class _Observer:
    """Listens to the engine and keeps the log. (Callback names and events: `gepa.core.callbacks`.)"""

    def __init__(self, context: SearchContext, adapter: _Adapter) -> None:
        self.context = context
        self.adapter = adapter

    def on_valset_evaluated(self, event: Mapping[str, Any]) -> None:
        log, score = self.context.log, event["average_score"]
        if log.best_score is None or score > log.best_score:
            log.commit(self.context.baseline.with_instructions(event["candidate"]), score)

    def on_evaluation_skipped(self, event: Mapping[str, Any]) -> None:
        self.context.log.skipped(event["reason"].replace("_", " "))

    def on_candidate_accepted(self, event: Mapping[str, Any]) -> None:
        self._decide(True, f"minibatch {event['new_score']:g}")

    def on_candidate_rejected(self, event: Mapping[str, Any]) -> None:
        self._decide(False, event["reason"])

    def on_merge_attempted(self, event: Mapping[str, Any]) -> None:
        self.adapter.last = self.context.baseline.with_instructions(event["merged_candidate"])
        self.context.log.proposed(self.adapter.last, origin="merge")

    def on_merge_rejected(self, event: Mapping[str, Any]) -> None:
        self._decide(False, event["reason"])

    def on_error(self, event: Mapping[str, Any]) -> None:
        if not isinstance(event["exception"], InvalidStep):
            raise BugFound(f"the GEPA engine failed: {event['exception']}") from event["exception"]
        if self.adapter.last is None:
            self.context.log.skipped(str(event["exception"]))
        self._decide(False, str(event["exception"]))

    def _decide(self, accepted: bool, reason: str) -> None:
        if self.adapter.last is not None:
            self.context.log.decided(self.adapter.last, accepted, reason)
            self.adapter.last = None


class _Silent:
    """The engine's own log repeats every text; ours has each once."""

    def log(self, message: str) -> None:
        """Nothing."""
