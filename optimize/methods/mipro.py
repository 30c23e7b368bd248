"""`mipro`: joint search over instructions and demos with a Parzen-tree estimator (MIPROv2, arXiv 2406.11695).

DSPy's class does its first two steps through its own code: proposing instructions from the program, its demos and
tips, and putting choices into the program. What runs the program is ours: bootstrapping in threads, each row at most
once; trials asked from optuna and told back, so that a lost row invalidates a trial instead of scoring 0, no
combination is paid for twice, and the budget ends the search between trials. Off: labelled demos (they would put
dataset rows into the file) and the data-aware proposer (it prints rows with their answers into prompts).
"""

from __future__ import annotations

import logging
import random
import warnings
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, ClassVar

import dspy
from dspy.propose import GroundedProposer
from dspy.teleprompt import MIPROv2

from metrics.errors import ConfigurationError
from optimize.candidates import Candidate
from optimize.context import SearchContext
from optimize.demos import THRESHOLD, demo_sets, drops_demos, successes
from optimize.guard import problem_with
from optimize.methods.base import Method
from optimize.seeds import teleprompter_seed

logger = logging.getLogger(__name__)

ENOUGH_TRIALS = 20  # below it the estimator hardly differs from random search
SMALL_VALIDATION = 25  # rows up to which every trial is a full one
FULL_EVERY = 5  # minibatch trials between two full ones
PATIENCE = 40  # suggestions in a row that were all known: the space is exhausted


@dataclass(frozen=True)
class Plan:
    """How a budget is spent: rows to bootstrap from, instructions and demo sets per predictor, rows per trial."""

    bootstrap_rows: int
    candidates: int
    batch: int
    full: bool


class MIPRO(Method):
    """`max_demos` per predictor (0: instructions only, and the result has no demos); `candidates`: instructions and
    demo sets per predictor (0: from the budget).
    """

    name: ClassVar[str] = "mipro"

    def __init__(self, metric: Any = None, *, max_demos: int = 4, candidates: int = 0, **common: Any) -> None:
        super().__init__(metric, **common)
        if max_demos < 0 or candidates < 0 or candidates == 1:
            raise ConfigurationError("max_demos must be 0 or more, candidates 2 or more (or 0: from the budget)")
        self.max_demos = max_demos
        self.candidates = candidates

    def check(self, context: SearchContext) -> None:
        try:
            import optuna  # noqa: F401
        except ModuleNotFoundError:
            raise ConfigurationError("method mipro needs optuna: pip install 'optuna>=4.5'") from None
        if self.max_demos and drops_demos(context):
            logger.warning("demos are dropped in native tool calling: only instructions are searched")
            self.max_demos = 0

    def minimum_budget(self, context: SearchContext) -> int:
        return min(10, len(context.train)) + 2 * len(context.validation)

    def expected_calls(self, context: SearchContext) -> int:
        return 3 * self.plan(context).candidates * len(context.baseline.instructions)

    def plan(self, context: SearchContext) -> Plan:
        """Bootstrapping takes at most an eighth of the budget; full trials where at least 20 fit, else minibatches."""
        budget, n = context.ledger.limit, len(context.validation)
        rows = min(len(context.train), max(10, budget // 8))
        trials = max(0, budget - rows - n) // n
        full = n <= SMALL_VALIDATION or trials >= ENOUGH_TRIALS
        return Plan(
            rows, self.candidates or (6 if trials >= 6 or not full else 3), n if full else max(10, n // 3), full
        )

    def run(self, context: SearchContext) -> Candidate:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        search = _Search(context, self.plan(context), self.max_demos, teleprompter_seed(context.seed, self.name))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # optuna calls its multivariate sampler experimental on every start
            search.compile(
                context.program,
                trainset=context.train,
                valset=context.validation,
                num_trials=1,
                minibatch=False,
                data_aware_proposer=False,
            )
        return context.log.incumbent


class _Search(MIPROv2):
    """MIPROv2 with its own order of steps, and these three steps replaced."""

    def __init__(self, context: SearchContext, plan: Plan, max_demos: int, seed: int) -> None:
        super().__init__(
            metric=lambda *_: 0.0,  # the evaluator scores
            prompt_model=context.prompt_model,
            task_model=context.evaluate.lm or dspy.settings.lm,
            max_bootstrapped_demos=max_demos,
            max_labeled_demos=0,
            auto=None,
            num_candidates=plan.candidates,
            num_threads=1,
            seed=seed,
            track_stats=False,
            metric_threshold=THRESHOLD,
        )
        self.context = context
        self.plan = plan

    def _bootstrap_fewshot_examples(self, program: dspy.Module, *_: Any, **__: Any) -> dict[int, list[Any]]:
        """Demo sets by predictor position, from runs of the baseline; with zero demos they inform the proposer only."""
        size = self.max_bootstrapped_demos or 3
        runs = successes(self.context, most_rows=self.plan.bootstrap_rows, wanted=3 * size)
        names = [name for name, _ in program.named_predictors()]
        sets = demo_sets(runs, names, n_sets=self.plan.candidates, size=size, rng=self.context.rng("demos"))
        examples = [{name: [dspy.Example(**d) for d in demos] for name, demos in one.items()} for one in sets]
        return {i: [one[name] for one in examples] for i, name in enumerate(names)}

    def _propose_instructions(
        self, program: dspy.Module, trainset: list, demo_candidates: dict, *_: Any, **__: Any
    ) -> dict[int, list[str]]:
        """Instructions per predictor position, the current one first; unusable proposals are left out."""
        n = self.plan.candidates - 1
        demos = {i: (sets * n)[:n] for i, sets in demo_candidates.items()}
        proposer = _Proposer(self.context, program, self.rng, self.init_temperature)
        proposed = proposer.propose_instructions_for_program(
            trainset=trainset, program=program, demo_candidates=demos, N=n, trial_logs={}
        )
        pools = {}
        for i, (name, predictor) in enumerate(program.named_predictors()):
            current = predictor.signature.instructions
            usable = [text for text in proposed[i] if self._usable(name, text, current)]
            pools[i] = list(dict.fromkeys([current, *usable]))
            self.context.log.extra.setdefault("pools", {})[name] = pools[i]
        return pools

    def _usable(self, name: str, text: str | None, current: str) -> bool:
        problem = problem_with(text, current) or ("unchanged" if text and text.strip() == current.strip() else None)
        if problem is not None:
            self.context.log.refused(name, problem)
        return problem is None

    def _optimize_prompt_parameters(
        self, program: dspy.Module, instruction_candidates: dict, demo_candidates: dict | None, *_: Any, **__: Any
    ) -> dspy.Module:
        """Ask, run, tell, until the budget or the space ends. The incumbent is in the context's log."""
        import optuna

        context, log = self.context, self.context.log
        if demo_candidates is not None and all(len(sets) < 2 for sets in demo_candidates.values()):
            demo_candidates = None
        default = context.trial(context.baseline, context.validation, "validation")
        if default is None:
            log.stop_reason = "infrastructure"
            return program
        log.commit(context.baseline, default)
        spaces = self._get_param_distributions(program, instruction_candidates, demo_candidates)
        sampler = optuna.samplers.TPESampler(seed=self.seed, multivariate=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        first = {name: 0 for name in spaces}
        study.add_trial(optuna.trial.create_trial(params=first, distributions=spaces, value=default))
        trials = _Trials(context, self.plan, program, study, spaces)
        trials.full[context.baseline.id] = default
        known = 0
        while known < PATIENCE and (log.best_score or 0) < 1:
            trial = study.ask(fixed_distributions=spaces)
            candidate = self._candidate(program, instruction_candidates, demo_candidates, trial)
            if candidate.id in trials.full or (not self.plan.full and len(trials.partial[candidate.id]) >= 2):
                known += 1
                trials.tell_again(candidate, trial)
                continue
            known = 0
            if not trials.run(candidate, trial):
                log.stop_reason = "budget"
                return program
        log.stop_reason = "perfect" if (log.best_score or 0) >= 1 else "space exhausted"
        return program

    def _candidate(self, program: dspy.Module, instructions: dict, demos: dict | None, trial: Any) -> Candidate:
        chosen = program.deepcopy()
        self._select_and_insert_instructions_and_demos(chosen, instructions, demos, trial, defaultdict(dict), 0)
        return Candidate.of(chosen)


class _Trials:
    """Runs trials: full ones, or minibatches with a full evaluation of the best average after every fifth."""

    def __init__(self, context: SearchContext, plan: Plan, program: dspy.Module, study: Any, spaces: dict) -> None:
        self.context = context
        self.plan = plan
        self.study = study
        self.spaces = spaces
        self.full: dict[str, float | None] = {}
        self.partial: dict[str, list[float]] = defaultdict(list)
        self.params: dict[str, dict[str, Any]] = {}
        self.count = 0

    def mean(self, candidate_id: str) -> float:
        scores = self.partial[candidate_id]
        return sum(scores) / len(scores)

    def tell_again(self, candidate: Candidate, trial: Any) -> None:
        """Answer a suggestion that was run before with what is known of it."""
        import optuna

        score = self.full.get(candidate.id)
        if score is None and self.partial[candidate.id]:
            score = self.mean(candidate.id)
        state = optuna.trial.TrialState.FAIL if score is None else None
        self.study.tell(trial, score, state=state)

    def run(self, candidate: Candidate, trial: Any) -> bool:
        """One trial, told to the study; False when it does not fit the budget any more."""
        import optuna

        context = self.context
        rows = context.validation if self.plan.full else self._minibatch()
        if context.ledger.remaining < len(rows):
            return False
        self.count += 1
        if candidate.id not in self.params:
            context.log.proposed(candidate, origin="trial")
            self.params[candidate.id] = dict(trial.params)
        score = context.trial(candidate, rows, "validation" if self.plan.full else "minibatch")
        if score is None:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            self.full[candidate.id] = None if self.plan.full else self.full.get(candidate.id)
            return True
        self.study.tell(trial, score)
        if self.plan.full:
            self._full(candidate, score)
            return True
        self.partial[candidate.id].append(score)
        return self.count % FULL_EVERY != 0 or self._evaluate_leader()

    def _minibatch(self) -> list[Any]:
        rng = self.context.rng("minibatch", self.count)
        return rng.sample(self.context.validation, min(self.plan.batch, len(self.context.validation)))

    def _evaluate_leader(self) -> bool:
        """Score the best candidate on average that has no full score yet on all rows."""
        import optuna

        open_ids = [i for i in self.partial if i not in self.full]
        if not open_ids:
            return True
        leader = self.context.log.candidates[max(open_ids, key=self.mean)]  # the earliest of equals
        if self.context.ledger.remaining < len(self.context.validation):
            return False
        score = self.context.trial(leader, self.context.validation, "validation")
        if score is not None:
            params = self.params[leader.id]
            told = optuna.trial.create_trial(params=params, distributions=self.spaces, value=score)
            self.study.add_trial(told)
            self._full(leader, score)
        else:
            self.full[leader.id] = None
        return True

    def _full(self, candidate: Candidate, score: float) -> None:
        log = self.context.log
        self.full[candidate.id] = score
        better = log.best_score is not None and score > log.best_score
        log.decided(candidate, better, f"validation {score:g}")
        if better:
            log.commit(candidate, score)


class _Proposer(GroundedProposer):
    """DSPy's proposer without its two leaks of control: an unreadable reply is no proposal, and nothing is printed."""

    def __init__(self, context: SearchContext, program: dspy.Module, rng: random.Random, temperature: float) -> None:
        self.ledger = context.ledger
        super().__init__(
            prompt_model=context.prompt_model,
            program=program,
            trainset=[],
            use_dataset_summary=False,
            program_aware=True,
            use_task_demos=True,
            num_demos_in_context=3,
            use_tip=True,
            set_tip_randomly=True,
            use_instruct_history=False,
            set_history_randomly=False,
            rng=rng,
            init_temperature=temperature,
        )

    def propose_instruction_for_predictor(self, *args: Any, **kwargs: Any) -> str | None:
        try:
            return super().propose_instruction_for_predictor(*args, **kwargs)
        except (dspy.utils.exceptions.AdapterParseError, dspy.LMError):
            self.ledger.count("parse_failures")
            return None
