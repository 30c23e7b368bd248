"""What a search did: proposals, evaluations, the incumbent over time. Plain data, in the order in which it happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optimize.candidates import Candidate
from optimize.ledger import BudgetLedger


@dataclass
class SearchLog:
    """The record of one search. Methods call `proposed`, `evaluated`, `decided` and `commit`; `note` for anything else.

    `history`: one dict per event, each with the rollouts spent so far. `candidates`: every candidate seen, by id.
    `tried`, `accepted` and `refusals` count proposals, `skips` the steps that made none, by reason. `incumbent`: the
    last committed candidate. `sink` receives each event (a job writes its log), `on_commit` each new incumbent (a job
    writes the best program so far).
    """

    baseline: Candidate
    ledger: BudgetLedger
    sink: Callable[[dict[str, Any]], None] | None = None
    on_candidate: Callable[[Candidate, dict[str, Any]], None] | None = None
    on_commit: Callable[[Candidate, float | None], None] | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    tried: int = 0
    accepted: int = 0
    refusals: int = 0
    invalid_trials: int = 0
    skips: Counter[str] = field(default_factory=Counter)
    stop_reason: str = ""
    extra: dict[str, Any] = field(default_factory=dict)  # what a method shows of itself: pools, phi, posterior
    curve: list[tuple[float, float | None, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.incumbent = self.baseline
        self.best_score: float | None = None
        self.seed_score: float | None = None
        self._known(self.baseline, {"origin": "baseline"})

    def _known(self, candidate: Candidate, about: dict[str, Any]) -> None:
        if candidate.id not in self.candidates:
            self.candidates[candidate.id] = candidate
            if self.on_candidate is not None:
                self.on_candidate(candidate, about)

    def note(self, event: str, **fields: Any) -> None:
        """Add one event to the history; `fields` are JSON-safe."""
        entry = {"event": event, "rollouts": self.ledger.spent, **fields}
        self.history.append(entry)
        if self.sink is not None:
            self.sink(entry)

    def proposed(self, candidate: Candidate, *, origin: str, parent: Candidate | None = None, **fields: Any) -> None:
        """A proposal was made; `origin` is what made it (`reflection`, `merge`, `trial` ...)."""
        self.tried += 1
        changed = candidate.changed_from(parent or self.baseline)
        about = {"origin": origin, "parent": (parent or self.baseline).id, "changed": list(changed), **fields}
        self._known(candidate, about)
        self.note("proposed", candidate=candidate.id, **about)

    def evaluated(self, candidate: Candidate, split: str, score: float | None, rows: int, **fields: Any) -> None:
        """A trial ended; a score of None marks it invalid: it takes no part in any choice."""
        self._known(candidate, {"origin": "evaluated"})
        self.invalid_trials += score is None
        if candidate.id == self.baseline.id and split == "validation" and self.seed_score is None:
            self.seed_score = score
        self.note("evaluated", candidate=candidate.id, split=split, score=score, rows=rows, **fields)

    def decided(self, candidate: Candidate, accepted: bool, reason: str = "") -> None:
        """A proposal was accepted into the method's pool, or rejected."""
        self.accepted += accepted
        self.note("accepted" if accepted else "rejected", candidate=candidate.id, reason=reason)

    def refused(self, predictor: str, reason: str) -> None:
        """A proposal that was never run: unreadable, unchanged, or it broke the contract of the instruction."""
        self.tried += 1
        self.refusals += 1
        self.note("refused", predictor=predictor, reason=reason)

    def skipped(self, reason: str) -> None:
        """A step that could make no proposal."""
        self.skips[reason] += 1
        self.note("skipped", reason=reason)

    def commit(self, candidate: Candidate, score: float | None) -> None:
        """`candidate` is the best so far, with this score on the rows by which the method chooses (normally
        validation).
        """
        self._known(candidate, {"origin": "committed"})
        self.incumbent, self.best_score = candidate, score
        self.curve.append((self.ledger.spent, score, candidate.id))
        self.note("committed", candidate=candidate.id, score=score)
        if self.on_commit is not None:
            self.on_commit(candidate, score)

    def learning_curve(self, every: int = 10) -> list[dict[str, Any]]:
        """Score of the latest committed incumbent at every `every` charged rollouts, carried forward to the
        budget's end.
        """
        points = []
        for rollouts in range(0, self.ledger.limit + 1, every):
            at = [c for c in self.curve if c[0] <= rollouts]
            score, candidate = (at[-1][1], at[-1][2]) if at else (None, self.baseline.id)
            points.append({"rollouts": rollouts, "score": score, "candidate": candidate})
        return points

    def to_json(self) -> dict[str, Any]:
        """The stats that a teleprompter attaches to its result (`optimizer_stats`)."""
        return {
            "history": list(self.history),
            "counters": self.ledger.snapshot(),
            "stop_reason": self.stop_reason,
            "seed_score": self.seed_score,
            "best_score": self.best_score,
            "proposals_tried": self.tried,
            "proposals_accepted": self.accepted,
            "proposals_refused": self.refusals,
            "invalid_trials": self.invalid_trials,
            "steps_skipped": dict(sorted(self.skips.items())),
            **self.extra,
        }


def curve_csv(points: Sequence[Mapping[str, Any]]) -> str:
    """The learning curve as CSV: rollouts, score (empty when unknown), candidate."""
    lines = ["rollouts,score,candidate"]
    lines += [f"{p['rollouts']},{'' if p['score'] is None else p['score']},{p['candidate']}" for p in points]
    return "\n".join(lines) + "\n"
