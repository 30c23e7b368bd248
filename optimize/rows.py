"""Rows: the examples of an optimization, and what one rollout on an example gave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import dspy

from optimize.jsonable import digest, jsonable
from optimize.replay import Request


class ForeignRow:
    """A plain `dspy.Example` as a row: its inputs, an id from its content, and labels under the names used here."""

    def __init__(self, inner: dspy.Example) -> None:
        self.inner = inner
        inputs = dict(inner.inputs().items())
        fields = dict(inner.items())
        self.id = fields["id"] if isinstance(fields.get("id"), str | int) else digest(jsonable(fields), size=6)
        self.question = str(fields.get("question", next(iter(inputs.values()), "")))
        self.gold = fields.get("answer", fields.get("gold"))
        self.tools = fields.get("tools") or []
        self.answer_format = fields.get("answer_format")

    def inputs(self) -> dspy.Example:
        return self.inner.inputs()

    def __repr__(self) -> str:
        return f"ForeignRow(id={self.id!r})"


def as_rows(examples: Iterable[Any]) -> list[Any]:
    """Rows for a rollout: examples that carry `id`, `question` and `gold` stay, plain ones are wrapped.

    Raises `ValueError` for examples without declared inputs (`example.with_inputs(...)`).
    """
    return [
        row if hasattr(row, "gold") and getattr(row, "id", None) is not None else ForeignRow(row) for row in examples
    ]


@dataclass
class NodeCall:
    """One predictor call of a rollout: its inputs as the trace keeps them, its prediction, and how it was made.

    `request` has the live inputs (tools are objects), for asking the role the same thing again
    (`SearchContext.probe`); None for a masked call.
    """

    role: str
    predictor: str
    inputs: dict[str, Any]
    prediction: dspy.Prediction
    masked: bool = False
    request: Request | None = field(default=None, repr=False)


@dataclass
class Row:
    """One rollout as a method sees it.

    `score` in [0, 1], None when the row is unusable (`error`: `{kind, type, message}` of the infrastructure failure);
    a malformed run has score 0. `calls`: what each role did, in call order (empty without `want_trace`).
    """

    example: Any
    id: str
    score: float | None
    feedback: str | None = None
    answer: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)  # all scores of the rule, and of its stricter sisters
    error: dict[str, str] | None = None
    calls: list[NodeCall] = field(default_factory=list)
    node_calls: int = 0  # predictor calls that were executed
    replayed_calls: int = 0  # predictor calls that the replay cache answered
    prediction: Any = None  # what the program returned; None when answered from a journal
    unreadable: str | None = None  # what could not be read, where the run has no answer that rests on replies

    @property
    def usable(self) -> bool:
        return self.score is not None

    @property
    def inputs(self) -> dict[str, list[dict[str, Any]]]:
        """role -> what it received, once per call, JSON-safe; masked roles are left out."""
        return self._by_role(lambda call: call.inputs)

    @property
    def outputs(self) -> dict[str, list[dict[str, Any]]]:
        """role -> what it wrote, once per call, JSON-safe; masked roles are left out."""
        return self._by_role(lambda call: call.prediction)

    @property
    def masked(self) -> tuple[str, ...]:
        """Roles that the program asked and that were masked."""
        return tuple(dict.fromkeys(call.role for call in self.calls if call.masked))

    def _by_role(self, part: Callable[[NodeCall], Any]) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for call in self.calls:
            if not call.masked:
                found.setdefault(call.role, []).append(jsonable(part(call)))
        return found


def mean_score(rows: Sequence[Row], expected: int | None = None) -> float | None:
    """The mean score of a trial, or None when the trial is invalid.

    Invalid: no rows, an unusable row, or fewer rows than `expected` (cut at the budget). The sum is exact, so that
    equal scores compare equal whatever their order.
    """
    if not rows or (expected is not None and len(rows) != expected):
        return None
    total = Fraction(0)
    for row in rows:
        if row.score is None:
            return None
        total += Fraction(row.score)
    return float(total / len(rows))
