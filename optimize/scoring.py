"""What an optimizer maximizes: the task's own rule, or any DSPy metric, as one kind of verdict.

Both give a score in [0, 1] per row and a sentence of feedback. A gold answer appears in feedback on training rows
only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from metrics.errors import ConfigurationError
from optimize.clip import clip
from programs.neutral import encodable


@dataclass(frozen=True)
class Verdict:
    """`score` in [0, 1]; `feedback` for reflection, or None; `fields`: the scores to record beside."""

    score: float
    feedback: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


class Scoring(Protocol):
    """A scoring rule. `task_score` is what `run_rollout` calls; `verdict` reads its rollout."""

    name: str

    def task_score(
        self, example: Any, final_text: str, answer: str | None, last_tool_result: str
    ) -> dict[str, Any]: ...

    def verdict(self, example: Any, rollout: Any, *, reveal_gold: bool) -> Verdict: ...


class TaskScoring:
    """The rule of a task: `field` of its scores (`correct`, `strict_correct`, `em`) is maximized, all are recorded."""

    def __init__(self, task: Any, field: str | None = None) -> None:
        self.name = field or task.primary
        self.rule = task.scoring
        self._score = task.score

    def task_score(self, example: Any, final_text: str, answer: str | None, last_tool_result: str) -> dict[str, Any]:
        return self._score(example, final_text, answer, last_tool_result)

    def verdict(self, example: Any, rollout: Any, *, reveal_gold: bool) -> Verdict:
        fields = score_fields(rollout.row)
        score = float(fields.get(self.name) or 0.0)
        return Verdict(score, _outcome_sentence(score, rollout.row, example.gold if reveal_gold else None), fields)


class MetricScoring:
    """A DSPy metric as the rule.

    Accepts `metric(example, prediction)`, with `trace=None` as a third argument, or GEPA's five-argument form; it
    returns a number, a bool, or a Prediction with `score` and `feedback`, the score from 0 to 1. Raises
    `ConfigurationError` for anything else. With `task`, the task's own scores are recorded beside.
    """

    def __init__(self, metric: Callable[..., Any], task: Any = None) -> None:
        self.metric = metric
        self.task = task
        self.name = "score"
        self.rule = getattr(metric, "__name__", type(metric).__name__)
        self._arguments = _positional_arguments(metric)

    def task_score(self, example: Any, final_text: str, answer: str | None, last_tool_result: str) -> dict[str, Any]:
        # The metric itself sees the whole prediction, in `verdict`.
        return {} if self.task is None else self.task.score(example, final_text, answer, last_tool_result)

    def verdict(self, example: Any, rollout: Any, *, reveal_gold: bool) -> Verdict:
        given = getattr(example, "inner", example)
        returned = self.metric(given, rollout.prediction, *[None] * (self._arguments - 2))
        score, feedback = read_score(returned, f"the metric {self.rule}", example.id)
        if not reveal_gold or feedback is None:
            feedback = _outcome_sentence(score, rollout.row, None)
        return Verdict(score, feedback, {**score_fields(rollout.row), "score": score})


def read_score(value: Any, who: str = "a metric", row: Any = None) -> tuple[float, str | None]:
    """(score, feedback) of what a metric returned: float, bool, or anything with `score` and perhaps `feedback`.

    `ConfigurationError`, with `who` returned what for which row, for what is no number from 0 to 1.
    """
    feedback, score = None, value
    if not isinstance(value, bool | int | float):
        feedback = getattr(value, "feedback", None)
        score = getattr(value, "score", None)
        if score is None and isinstance(value, Mapping):
            score, feedback = value.get("score"), value.get("feedback")
    where = "" if row is None else f" for row {row}"
    try:
        number = float(score)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        returned = "None" if value is None else f"{clip(encodable(repr(value)), 80)} ({type(value).__name__})"
        raise ConfigurationError(
            f"{who} must return a number, a bool, or a Prediction with a `score`; it returned {returned}{where}"
        ) from None
    if not 0 <= number <= 1:  # nan is refused, too
        raise ConfigurationError(f"{who} returned {number}{where}; scores are between 0 and 1")
    return number, None if feedback is None else encodable(str(feedback))


def _positional_arguments(metric: Callable[..., Any]) -> int:
    """How many of (example, prediction, trace, pred_name, pred_trace) the metric can take: 2, 3 or 5."""
    try:
        signature = inspect.signature(metric)
    except (TypeError, ValueError):
        return 2
    for n in (5, 3, 2):
        try:
            signature.bind(*[None] * n)
        except TypeError:
            continue
        return n
    raise ConfigurationError(f"the metric must accept (example, prediction), it has the signature {signature}")


_SCORES = ("correct", "strict_correct", "credited_by", "em", "f1", "precision", "recall", "cover_em", "lenient_em")


def score_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """The scores in a row of `run_rollout`, without question and gold."""
    return {name: row[name] for name in _SCORES if row.get(name) is not None}


def _outcome_sentence(score: float, row: Mapping[str, Any], gold: Any) -> str:
    """What happened, in words that a reflecting model can use."""
    answer = row.get("predicted_answer")
    given = "no answer" if answer in (None, "") else f"the answer {answer!r}"
    if score >= 1:
        return f"Correct: the team gave {given}."
    sentence = f"Wrong (score {score:g}): the team gave {given}"
    return f"{sentence}, expected was {str(gold)!r}." if gold is not None else f"{sentence}."
