"""The evaluation helper that every optimizer drives: run an assignment on rows, inside the budget, and read each role.

One batch at a time, the rows of a batch in threads. Results come in the order of the rows and depend on nothing else.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import dspy

from metrics.console import UNREADABLE_SHARE
from metrics.errors import describe_error, error_kind
from metrics.pool import run_pool
from metrics.rollout import Rollout, predictor_names, run_rollout
from metrics.usage import sum_money
from optimize.candidates import Candidate, Roles
from optimize.clip import clip
from optimize.journal import Journal
from optimize.jsonable import digest, jsonable
from optimize.ledger import BudgetLedger
from optimize.replay import SCOPE, ReplayCache, RolloutScope
from optimize.rows import NodeCall, Row
from optimize.scoring import Scoring, Verdict
from optimize.stops import BugFound, EndpointDown
from programs.masking import is_masked
from programs.neutral import encodable

KEPT_PROGRAMS = 8  # instrumented copies kept for candidates that are evaluated again
DEAD_AFTER = 5  # rollouts lost in a row that mean a dead endpoint


@dataclass
class Evaluator:
    """`evaluate(candidate, rows)` for one program, one scoring rule, one phase.

    `program`: the baseline; it is copied for every candidate and never changed. `lm`: the task model (default: the
    ambient one). `phase` and `seed` give each row its seed. `decoding` overrides the program's own, None leaves it.
    `train_ids`: rows whose gold may appear in feedback. `max_errors`: the share of rollouts that may be lost to the
    infrastructure before the endpoint counts as dead. `pauses`: seconds before each retry of a lost rollout.
    `journal`: where rollouts are recorded, and found by a resumed job.
    """

    program: dspy.Module
    scoring: Scoring
    ledger: BudgetLedger
    roles: Roles
    lm: Any = None
    phase: str = "optimize"
    seed: int = 0
    threads: int = 16
    decoding: dict[str, Any] | None = None
    question_timeout: float | None = 600.0
    max_errors: float | int | None = 0.1
    pauses: Sequence[float] = (1.0, 4.0)
    train_ids: frozenset[str] = frozenset()
    replay: ReplayCache = field(default_factory=ReplayCache)
    journal: Journal = field(default_factory=Journal)
    record_lost: bool = True  # record unusable rows as well: decisions were made on them
    on_row: Callable[[Row], None] | None = None  # called with every finished row, in the calling thread
    usage: list[dict[str, dict[str, Any]]] = field(default_factory=list)  # per run: role -> tokens, calls, money

    def __post_init__(self) -> None:
        self._built: OrderedDict[str, dspy.Module] = OrderedDict()
        self._order = 0
        self._finished = 0
        self._lost = 0
        self._lost_in_a_row = 0
        self._lost_records: list[dict[str, Any]] = []

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
        """Run `candidate` on `rows`; one `Row` per row that the budget allowed, in order.

        The batch is cut at the budget; with `whole=True` a batch that does not fit is not run at all (an empty list).
        `active`: the roles that run, None for all. Raises `BugFound` when the program or the scoring rule raised,
        `EndpointDown` when too many rollouts were lost.
        """
        n = len(rows)
        granted = n if not charge else (n * self.ledger.try_charge(n) if whole else self.ledger.reserve(n))
        self._order += granted
        done: dict[int, _Run] = {}
        try:
            self._run_batch(candidate, list(enumerate(rows[:granted])), active, want_trace, done)
        finally:
            if charge:
                self.ledger.settle(granted, sum((run.price(self.ledger.price) for run in done.values()), Fraction(0)))
                self.ledger.count("rollouts", sum(run.row.usable for run in done.values()))
        return [done[index].row for index in sorted(done)]

    def _run_batch(
        self,
        candidate: Candidate,
        batch: list[tuple[int, Any]],
        active: frozenset[str] | None,
        want_trace: bool,
        done: dict[int, _Run],
    ) -> None:
        """Fill `done` (index -> run) from threads; stop at the first bug or when the endpoint is dead."""
        first = self._order - len(batch)
        program = self.instrumented(candidate)
        stop: list[BaseException] = []

        def work(item: tuple[int, Any]) -> _Run:
            return self._rollout(program, candidate, item[1], active, want_trace)

        def on_result(item: tuple[int, Any], run: _Run | None, error: BaseException | None) -> None:
            if run is None:
                stop.append(error or RuntimeError("a rollout ended without a result"))
                return
            done[item[0]] = run
            self._book(run, first + item[0])
            if self.on_row is not None:
                self.on_row(run.row)
            try:
                self._watch(run.row)
            except EndpointDown as down:
                stop.append(down)

        def on_overdue(item: tuple[int, Any], seconds: float) -> None:
            on_result(item, _Run.overdue(item[1], seconds), None)

        limit = None if self.question_timeout is None else 2 * self.question_timeout + 60
        for wave in _waves(batch):
            run_pool(
                wave,
                work,
                threads=self.threads,
                on_result=on_result,
                on_overdue=on_overdue,
                limit_s=limit,
                stop=lambda: bool(stop),
            )
        if stop:
            raise next((error for error in stop if isinstance(error, BugFound)), stop[0])

    def instrumented(self, candidate: Candidate) -> dspy.Module:
        """A copy of the program that carries `candidate` and answers its calls through the replay cache."""
        built = self._built.pop(candidate.id, None)
        if built is None:
            built = self.replay.install(candidate.build(self.program), self.roles.role_of)
        self._built[candidate.id] = built
        while len(self._built) > KEPT_PROGRAMS:
            self._built.popitem(last=False)
        return built

    def _rollout(
        self, program: dspy.Module, candidate: Candidate, example: Any, active: frozenset[str] | None, want_trace: bool
    ) -> _Run:
        """One row, from the journal or by running the program; lost runs are repeated with the same seed."""
        key = digest(self.phase, candidate.id, str(example.id), sorted(active) if active is not None else None)
        record = self.journal.take(key)
        if record is not None and (not want_trace or record.get("error")):
            self.replay.adopt(record["calls"])
            return _Run.from_record(record, example)
        runs: list[tuple[Rollout, RolloutScope]] = []
        for pause in (0.0, *self.pauses):
            time.sleep(pause)
            scope = RolloutScope()
            with dspy.context(lm=self.lm or dspy.settings.lm, **{SCOPE: scope}):
                rollout = run_rollout(
                    program,
                    example,
                    self.scoring.task_score,
                    seed=self.seed,
                    phase=self.phase,
                    decoding=self.decoding,
                    question_timeout=self.question_timeout,
                    active_roles=active,
                    keep_trace=False,
                )
                runs.append((rollout, scope))
                verdict, error = self._verdict(example, rollout)
            if verdict is not None:
                break
        row = Row(
            example=example,
            id=str(example.id),
            score=None if verdict is None else verdict.score,
            feedback=None if verdict is None else verdict.feedback,
            answer=rollout.row.get("predicted_answer"),
            fields={} if verdict is None else dict(verdict.fields),
            error=None if error is None else describe_error(error),
            calls=self._node_calls(program, rollout, scope) if want_trace else [],
            node_calls=sum(s.executed for _, s in runs),
            replayed_calls=sum(s.replayed for _, s in runs),
            prediction=rollout.prediction,
            unreadable=_unreadable(rollout),
        )
        usage = [r.row["usage_by_role"] for r, _ in runs]
        new = None if record is not None else {"key": key, "candidate": candidate.id, "phase": self.phase}
        return _Run.make(row, usage, lost=len(runs) - (verdict is not None), scope=scope, record=new)

    def _verdict(self, example: Any, rollout: Rollout) -> tuple[Verdict | None, BaseException | None]:
        """(verdict, None) of a usable run, (None, error) of a lost one; raises `BugFound` for anything else."""
        error: BaseException | None = rollout.error
        if error is None:
            try:
                return self.scoring.verdict(example, rollout, reveal_gold=str(example.id) in self.train_ids), None
            except Exception as raised:
                error = raised
        elif isinstance(error, dspy.utils.exceptions.AdapterParseError) or error_kind(error) == "context_overflow":
            kind = "its reply could not be parsed" if error_kind(error) == "program" else "its context was too long"
            return Verdict(0.0, f"Wrong: the program gave no answer, {kind}.", {self.scoring.name: 0.0}), None
        if error_kind(error) == "program":
            raise BugFound(f"row {example.id} in phase {self.phase}: {type(error).__name__}: {error}") from error
        return None, error

    def _node_calls(self, program: dspy.Module, rollout: Rollout, scope: RolloutScope) -> list[NodeCall]:
        """The DSPy trace by predictor identity: signatures are no identity, two roles may have equal ones."""
        names = predictor_names(program)
        calls = [
            NodeCall(
                role=self.roles.role_of(names[id(p)]),
                predictor=names[id(p)],
                inputs=inputs,
                prediction=prediction,
                masked=is_masked(prediction),
                request=scope.request(prediction),
            )
            for p, inputs, prediction in rollout.steps
            if id(p) in names
        ]
        if scope.unordered:
            position = {name: i for i, name in enumerate(names.values())}
            calls.sort(key=lambda c: (position[c.predictor], digest(_texts_of(c))))
        return calls

    def _book(self, run: _Run, order: int) -> None:
        """Count what a finished run used, and record it."""
        ledger = self.ledger
        ledger.count("node_calls", run.row.node_calls)
        ledger.count("cached_node_calls", run.row.replayed_calls)
        ledger.count("failed_rollouts", run.lost)
        for by_role in run.usage:
            self.usage.append(by_role)
            for part in by_role.values():
                ledger.pay(part.get("usd_billed"), part.get("lm_calls", 0))
            ledger.price_run(sum_money(part.get("usd_without_cache") for part in by_role.values()))
        if run.record is None:
            return
        record = {**run.record, "order": order}
        if not run.row.usable:
            self._lost_records.append(record)
            return
        if run.executed:
            self._record_lost()
        self.journal.append(record)

    def _record_lost(self) -> None:
        """Record the rows that were lost before a call succeeded again.

        Decisions were made on them, which a resumed job must find again; rows lost to an endpoint that stays dead are
        run again instead.
        """
        for record in self._lost_records if self.record_lost else ():
            self.journal.append(record)
        self._lost_records.clear()

    def _watch(self, row: Row) -> None:
        """Raise `EndpointDown` once the share of lost rollouts, or a run of them, says that nothing will come."""
        self._finished += 1
        self._lost += not row.usable
        self._lost_in_a_row = 0 if row.usable else self._lost_in_a_row + 1
        limit = self.max_errors
        if isinstance(limit, float) and limit < 1:
            limit = max(limit * self._finished, DEAD_AFTER - 1)
        if self._lost_in_a_row >= DEAD_AFTER or (limit is not None and self._lost > limit):
            error = row.error or {"type": "error", "message": "unknown", "kind": "infrastructure"}
            raise EndpointDown(
                f"{self._lost} of {self._finished} rollouts failed, the last with {error['type']}: {error['message']}",
                error["kind"],
            )


@dataclass
class _Run:
    """A finished rollout on its way to the ledger and the journal."""

    row: Row
    usage: list[dict[str, dict[str, Any]]]
    lost: int  # attempts lost to the infrastructure
    executed: int
    replayed: int
    record: dict[str, Any] | None  # what to write; None when it was read from the journal

    @classmethod
    def make(
        cls,
        row: Row,
        usage: list[dict[str, dict[str, Any]]],
        *,
        lost: int,
        scope: RolloutScope,
        record: dict[str, Any] | None,
    ) -> _Run:
        if record is not None:
            record = {
                **record,
                "id": row.id,
                "score": row.score,
                "feedback": row.feedback,
                "answer": row.answer,
                "fields": row.fields,
                "error": row.error,
                "node_calls": row.node_calls,
                "replayed_calls": row.replayed_calls,
                "price": [scope.executed, scope.replayed],
                "lost": lost,
                "unreadable": row.unreadable,
                "usage": usage,
                "calls": sorted(scope.keys),
            }
        return cls(row, usage, lost, scope.executed, scope.replayed, record)

    @classmethod
    def from_record(cls, record: dict[str, Any], example: Any) -> _Run:
        names = ("id", "score", "feedback", "answer", "fields", "error", "node_calls", "replayed_calls")
        row = Row(example=example, unreadable=record.get("unreadable"), **{name: record[name] for name in names})
        executed, replayed = record["price"]
        return cls(row, record["usage"], record["lost"], executed, replayed, None)

    @classmethod
    def overdue(cls, example: Any, seconds: float) -> _Run:
        error = {"kind": "timeout", "type": "Timeout", "message": f"no result after {seconds:.0f} s"}
        return cls(Row(example=example, id=str(example.id), score=None, error=error), [], 1, 0, 0, None)

    def price(self, price: str) -> Fraction:
        """What the run is charged: nothing when unusable, 1, or the executed share of its predictor calls."""
        if not self.row.usable:
            return Fraction(0)
        total = self.executed + self.replayed
        return Fraction(1) if price == "full" or total == 0 else Fraction(self.executed, total)


def _waves(batch: Sequence[tuple[int, Any]]) -> list[list[tuple[int, Any]]]:
    """The batch, with rows that occur again after the ones before them: side by side, either could pay for both."""
    waves: list[list[tuple[int, Any]]] = []
    seen: Counter[str] = Counter()
    for index, row in batch:
        turn = seen[str(row.id)]
        seen[str(row.id)] += 1
        waves += [[]] * (turn + 1 - len(waves))
        waves[turn] = [*waves[turn], (index, row)]
    return waves


def _texts_of(call: NodeCall) -> list[Any]:
    return [jsonable(call.inputs), jsonable(call.prediction)]


def _unreadable(rollout: Rollout) -> str | None:
    """What could not be read, when the run has no answer because of it, or one that most replies had no part in."""
    if isinstance(rollout.error, dspy.utils.exceptions.AdapterParseError):
        fields = ", ".join(rollout.error.signature.output_fields)
        return f"{fields} could not be read from the reply {clip(encodable(str(rollout.error.lm_response)), 120)!r}"
    bad, calls = rollout.row.get("parse_errors") or 0, rollout.row["n_lm_calls"]
    if rollout.error is None and bad and (bad >= UNREADABLE_SHARE * calls or not rollout.row.get("predicted_answer")):
        return f"{min(bad, calls)} of {calls} replies did not have the form that the program asks for"
    return None
