"""A task with the metric of `--metric package.module:metric` as its rule, for `eval.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from metrics.errors import ConfigurationError
from optimize.scoring import MetricScoring


class MetricTask:
    """The rows of `task`; their score is what the metric gives, called as in an optimization (`MetricScoring`).

    `name` is the metric's dotted path. The score (0 to 1) is the row's `correct`; the task's own rule is not applied,
    so that a row has one verdict. Raises ConfigurationError for rows that may not be run and for a metric with
    other arguments.
    """

    primary = "correct"
    refusal = None

    def __init__(self, task: Any, metric: Any, name: str) -> None:
        if refused := getattr(task, "refusal", None):
            raise ConfigurationError(f"--metric {name}: the rows cannot be run: {refused}")
        self.name, self.examples, self.config = task.name, task.examples, task.config
        self.notices = list(getattr(task, "notices", ()))
        self.scoring = name
        self._task, self._metric = task, MetricScoring(metric)

    def score(self, example: Any, final_text: str, answer: str | None, last_tool_result: str) -> dict[str, Any]:
        """The answer as the task reads it; the metric wants the whole prediction."""
        found = self._task.score(example, final_text, answer, last_tool_result)
        return {"predicted_answer": found.get("predicted_answer", answer), "correct": None}

    def score_prediction(self, example: Any, prediction: Any) -> dict[str, float | None]:
        """The metric's score. Raises what the metric raises."""
        rollout: Any = SimpleNamespace(row={}, prediction=prediction)
        return {"correct": self._metric.verdict(example, rollout, reveal_gold=False).score}

    def summarize(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {}
