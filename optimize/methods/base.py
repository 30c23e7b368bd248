"""What a method is: a name, the smallest budget that makes sense, and a search. It is a DSPy teleprompter as well.

Inside a job the protocol builds the `SearchContext` and calls `run`. Alone, `compile(student, trainset=...,
valset=...)` builds one in memory, runs the same search and lets the final gate decide.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import dspy
from dspy.teleprompt import Teleprompter

from metrics.errors import ConfigurationError
from optimize import seeds
from optimize.candidates import Candidate, Roles
from optimize.context import SearchContext
from optimize.evaluation import Evaluator
from optimize.ledger import BudgetLedger
from optimize.optimizer_lm import RecordedLM
from optimize.replay import ReplayCache
from optimize.rows import as_rows, mean_score
from optimize.scoring import MetricScoring
from optimize.search import run_search
from optimize.stats import SearchLog
from optimize.stops import BugFound, EndpointDown, JobInterrupted
from programs.role_graph import RoleGraph

logger = logging.getLogger(__name__)

DEFAULT_ROLLOUTS = 600
SEARCH_DECODING = {"temperature": 0.2, "top_p": 0.9}


class Method(Teleprompter):
    """Base class of all methods.

    `metric`: any DSPy metric (2, 3 or 5 arguments; float, bool or Prediction with `score` and `feedback`); needed by
    `compile` only. `prompt_model`: writes instructions (default: the current model); `judge_model`: scores texts
    (default: the prompt model). `graph`: the role graph, where the program has none and it should not be inferred.
    `max_rollouts`: the budget. `seed`: the optimizer seed, 0 included. `final_gate`: return the student's own texts
    unless the result is strictly better on the whole validation set. Subclasses define `name`, `minimum_budget` and
    `run`.
    """

    name: ClassVar[str] = ""
    needs_optimizer_model: ClassVar[bool] = True
    changes_programs: ClassVar[bool] = True
    call_tokens: ClassVar[int] = 2000  # of one call of the optimizer's model, for the estimate before a job

    def __init__(
        self,
        metric: Callable[..., Any] | None = None,
        *,
        prompt_model: Any = None,
        judge_model: Any = None,
        graph: RoleGraph | None = None,
        max_rollouts: int = DEFAULT_ROLLOUTS,
        seed: int = 0,
        num_threads: int = 16,
        final_gate: bool = True,
        feedback: Literal["plain", "topology", "blame"] = "plain",
    ) -> None:
        super().__init__()
        self.metric = metric
        self.prompt_model = prompt_model
        self.judge_model = judge_model
        self.graph = graph
        self.max_rollouts = max_rollouts
        self.seed = seed
        self.num_threads = num_threads
        self.final_gate = final_gate
        self.feedback = feedback

    def check(self, context: SearchContext) -> None:
        """Raise `ConfigurationError`, before anything is spent, for a program or an installation that does not fit."""

    def minimum_budget(self, context: SearchContext) -> int:
        """The smallest number of rollouts with which this method can score one proposal."""
        raise NotImplementedError

    def advised_budget(self, context: SearchContext) -> int:
        """The number of rollouts from which a result means something; below it a job says so before it starts."""
        return self.minimum_budget(context)

    def expected_calls(self, context: SearchContext) -> int:
        """About how many calls of the optimizer's model a whole budget takes, for the estimate before a job."""
        return 0

    def run(self, context: SearchContext) -> Candidate:
        """Search, inside `context.ledger`; returns the best candidate, the baseline when nothing beats it.

        Commit every new incumbent with `context.log.commit`, so that an early end keeps it.
        """
        raise NotImplementedError

    def compile(
        self,
        student: dspy.Module,
        *,
        trainset: Sequence[Any],
        teacher: dspy.Module | None = None,
        valset: Sequence[Any] | None = None,
    ) -> dspy.Module:
        """Optimize `student` (left as it is) and return a copy with the best texts and `optimizer_stats`.

        Without `valset`, a third of `trainset` (at least 4 rows) is held out. Raises `ConfigurationError` for what
        cannot be run, `ProgramBug` when program or metric raised, `JobInterrupted` when the models are out of reach.
        """
        if teacher is not None:
            raise ConfigurationError(f"{type(self).__name__} takes no teacher")
        if not trainset:
            raise ConfigurationError("the training set is empty")
        context = self._context(student, as_rows(trainset), as_rows(valset or ()))
        try:
            best = run_search(self, context)
            if self.final_gate and best.id != context.baseline.id:
                best = self._gate(context, best)
        except BugFound as bug:
            bug.give()
        except EndpointDown as down:
            raise JobInterrupted(str(down)) from down
        result = best.build(student)
        result.optimizer_stats = context.log.to_json()
        return result

    def _context(self, student: dspy.Module, train: list[Any], validation: list[Any]) -> SearchContext:
        if self.metric is None:
            raise ConfigurationError(f"{type(self).__name__} needs a metric: {type(self).__name__}(metric=...)")
        if not validation:
            train, validation = seeds.hold_out(train, self.seed)
        ledger = BudgetLedger(self.max_rollouts)
        roles = Roles(student, self.graph)
        if roles.frozen:
            logger.warning("predictors inside compiled sub-modules stay as they are: %s", ", ".join(roles.frozen))
        baseline = Candidate.of(student)
        model = self.prompt_model or dspy.settings.lm
        if model is None:
            raise ConfigurationError("no language model is configured: dspy.configure(lm=...) or prompt_model=...")
        prompt_model = RecordedLM(model, ledger=ledger, seed=self.seed)
        judge = self.judge_model
        return SearchContext(
            program=student,
            baseline=baseline,
            roles=roles,
            train=train,
            validation=validation,
            ledger=ledger,
            evaluate=Evaluator(
                program=student,
                scoring=MetricScoring(self.metric),
                ledger=ledger,
                roles=roles,
                seed=self.seed,
                threads=self.num_threads,
                decoding=dict(SEARCH_DECODING),
                train_ids=frozenset(str(row.id) for row in train),
                replay=ReplayCache(),
            ),
            prompt_model=prompt_model,
            judge_model=prompt_model if judge is None else RecordedLM(judge, ledger=ledger, seed=self.seed),
            log=SearchLog(baseline, ledger),
            method=self.name,
            seed=self.seed,
            feedback=self.feedback,
            threads=self.num_threads,
        )

    def _gate(self, context: SearchContext, best: Candidate) -> Candidate:
        """The incumbent if its mean on the whole validation set is strictly higher than the baseline's, else the
        baseline.
        """
        search = context.evaluate
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
        before, after = (
            mean_score(evaluate(candidate, context.validation, want_trace=False, charge=False))
            for candidate in (context.baseline, best)
        )
        passed = before is not None and after is not None and after > before
        context.log.note("gate", baseline=before, incumbent=after, deployed=best.id if passed else context.baseline.id)
        return best if passed else context.baseline
