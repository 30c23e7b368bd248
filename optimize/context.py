"""What a method is given: one object with the program, the rows, the budget, and the few things it may do with them."""

from __future__ import annotations

import contextvars
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import dspy

from metrics.errors import describe_error, is_infrastructure
from metrics.usage import UsageMeter, merge_usage
from optimize import seeds
from optimize.candidates import Candidate, Roles
from optimize.evaluation import Evaluator
from optimize.jsonable import digest, jsonable
from optimize.ledger import BudgetLedger
from optimize.optimizer_lm import KIND, RecordedLM
from optimize.replay import SCOPE, RolloutScope
from optimize.rows import NodeCall, Row, mean_score
from optimize.stats import SearchLog
from optimize.stops import EndpointDown
from programs.errors import ConfigurationError
from programs.role_graph import RoleGraph, resolve_role_graph

logger = logging.getLogger(__name__)
T = TypeVar("T")
U = TypeVar("U")


@dataclass
class SearchContext:
    """The world of one search.

    `program`: the baseline module (never changed); `baseline`: its texts; `roles`: what may be rewritten; `train`,
    `validation`: rows; `ledger`: the budget; `evaluate(candidate, rows, active=None, want_trace=True, whole=False)`:
    charged rollouts (see `Evaluator`); `prompt_model`, `judge_model`: the optimizer's models; `log`: where to say
    what happened; `seed`: the optimizer seed; `feedback`: `plain`, `topology` or `blame`; `threads`: for `ask_many`
    and rollouts.
    """

    program: dspy.Module
    baseline: Candidate
    roles: Roles
    train: list[Any]
    validation: list[Any]
    ledger: BudgetLedger
    evaluate: Evaluator
    prompt_model: RecordedLM
    judge_model: RecordedLM
    log: SearchLog
    method: str = ""
    seed: int = 0
    feedback: Literal["plain", "topology", "blame"] = "plain"
    threads: int = 16
    _graph: RoleGraph | None = field(default=None, repr=False)

    # -- randomness --------------------------------------------------------------------------------

    def rng(self, *parts: Any) -> random.Random:
        """A generator for one decision, named by `parts` (JSON-safe), under the method's name and the optimizer
        seed.
        """
        return seeds.rng(self.seed, self.method, *parts)

    # -- rollouts ----------------------------------------------------------------------------------

    def trial(self, candidate: Candidate, rows: Sequence[Any], split: str, *, want_trace: bool = False) -> float | None:
        """Mean score of `candidate` on all of `rows`, logged; None when the trial is invalid or does not fit the
        budget.
        """
        return mean_score(self.trial_rows(candidate, rows, split, want_trace=want_trace), len(rows))

    def trial_rows(
        self, candidate: Candidate, rows: Sequence[Any], split: str, *, want_trace: bool = True
    ) -> list[Row]:
        """The rows of a whole, logged trial; an empty list (and no charge) when it does not fit the budget."""
        result = self.evaluate(candidate, rows, want_trace=want_trace, whole=True)
        if result:
            self.log.evaluated(candidate, split, mean_score(result, len(rows)), len(result))
        return result

    def graph(self, rows: Sequence[Row] = ()) -> RoleGraph:
        """The role graph: given, else the program's own, else inferred from the traces of `rows` (at least three).

        `ConfigurationError` asks for a graph by name when there is none and no traces to infer it from.
        """
        if self._graph is None:
            given = self.roles.graph
            if given is None and len(self.roles.names) == 1:  # nobody else to read it
                given = RoleGraph(self.roles.names, self.roles.predictors)
            traces = [[(c.predictor, c.inputs, c.prediction) for c in row.calls] for row in rows if row.calls]
            self._graph = resolve_role_graph(self.program, given, traces)
        return self._graph

    def ensure_graph(self) -> RoleGraph:
        """The role graph; where it has to be inferred, from charged runs of the baseline on three training rows."""
        try:
            return self.graph()
        except ConfigurationError:
            return self.graph(self.evaluate(self.baseline, seeds.draw(self.train, 3, self.seed, "graph")))

    # -- single calls, counted and priced but not charged ------------------------------------------

    def probe(self, candidate: Candidate, call: NodeCall) -> dspy.Prediction | None:
        """Ask one role again, with `candidate`'s instruction, what a recorded `call` asked it; None when unreadable.

        The same inputs, tools, model, decoding and seed as in the rollout; answered by the replay cache where it can.
        """
        if call.request is None:
            raise ValueError(f"a masked call of {call.role} cannot be probed")
        program = self.evaluate.instrumented(candidate)
        predictor = dict(program.named_predictors())[call.predictor]
        kwargs = dict(call.request.kwargs)
        if "signature" in kwargs:
            kwargs["signature"] = kwargs["signature"].with_instructions(predictor.signature.instructions)
        scope, meter = RolloutScope(), UsageMeter()
        settings = {k: v for k, v in call.request.settings.items() if v is not None}
        with dspy.context(**settings, usage_meter=meter, usage_tracker=meter, trace=[], **{SCOPE: scope}):
            try:
                return predictor(**kwargs)
            except dspy.utils.exceptions.AdapterParseError:
                return None
            except Exception as error:
                if is_infrastructure(error):
                    what = describe_error(error)
                    raise EndpointDown(f"a probe of {call.role} failed: {what['message']}", what["kind"]) from error
                raise
            finally:
                self.ledger.count("probe_calls", scope.executed)
                self._book(meter, call.predictor)

    def ask(
        self,
        signature: type[dspy.Signature],
        *,
        kind: Literal["rewrite", "judge"] = "rewrite",
        temperature: float | None = None,
        max_tokens: int | None = None,
        **inputs: Any,
    ) -> dspy.Prediction | None:
        """One call of the optimizer's model; None when the reply could not be read (counted in `parse_failures`).

        A reply that cannot be read must never count in favour of anything: callers take their neutral value.
        """
        model = self.judge_model if kind == "judge" else self.prompt_model
        config = {"temperature": temperature, "max_tokens": max_tokens}
        config = {name: value for name, value in config.items() if value is not None}
        adapter = dspy.ChatAdapter(use_json_adapter_fallback=False)
        with dspy.context(lm=model, adapter=adapter, trace=None, **{KIND: kind}):
            try:
                return dspy.Predict(signature)(config=config, **inputs)
            except (dspy.utils.exceptions.AdapterParseError, dspy.LMError) as error:  # LMError: too long a request
                logger.info("unusable reply of the optimizer's model: %s", type(error).__name__)
                self.ledger.count("parse_failures")
                return None

    def ask_many(
        self,
        signature: type[dspy.Signature],
        questions: Sequence[Mapping[str, Any]],
        *,
        kind: Literal["rewrite", "judge"] = "rewrite",
        temperature: float | None = None,
    ) -> list[dspy.Prediction | None]:
        """`ask` of several questions in threads, answers in order. Equal questions are asked once: they deserve one
        answer, and which of two equal calls comes first would be left to the threads.
        """
        keys = [digest(jsonable(dict(q))) for q in questions]
        unique = {key: question for key, question in zip(keys, questions, strict=True)}

        def ask(question: Mapping[str, Any]) -> dspy.Prediction | None:
            return self.ask(signature, kind=kind, temperature=temperature, **question)

        replies = dict(zip(unique, self.map(ask, unique.values()), strict=True))
        return [replies[key] for key in keys]

    def map(self, work: Callable[[T], U], items: Iterable[T]) -> list[U]:
        """`work` of every item in threads (for `ask` and `probe`), results in order; the first exception is raised."""
        items = list(items)
        if len(items) <= 1 or self.threads <= 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(max_workers=min(self.threads, len(items))) as pool:
            futures = [pool.submit(contextvars.copy_context().run, work, item) for item in items]
            return [future.result() for future in futures]

    def _book(self, meter: UsageMeter, predictor: str) -> None:
        """Book a probe, under the predictor's name where the program does not say who acts (as in a rollout)."""
        by_role = merge_usage([{role or predictor: part} for role, part in meter.by_role().items()])
        self.evaluate.usage.append({r: {k: v for k, v in p.items() if k != "lm_seconds"} for r, p in by_role.items()})
        for part in by_role.values():
            self.ledger.pay(part.get("usd_billed"), part.get("lm_calls", 0))
