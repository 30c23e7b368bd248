"""The seam between the evaluation loop and the tasks: what a task must offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from metrics.example import QuestionExample


@dataclass(frozen=True)
class AnswerFormat:
    """The required answer form: what the model is told, how it is found, how votes are counted.

    `extract(text)` returns the answer or None; `vote_key(answer)` the key under which equal answers merge;
    `has_form(text)` whether a plain message carries the form itself, where `extract` also takes messages
    without it (None: a message has the form when `extract` finds something).
    All are module-level functions, so that examples stay picklable.
    """

    text: str
    extract: Any
    vote_key: Any
    has_form: Any = None


class Task(Protocol):
    """A dataset split, ready to run, with its official scoring rule."""

    name: str  # "toolhop", "hotpotqa-sample" ...
    scoring: str  # the rule's name, e.g. "mas-promptbench"
    primary: str  # the row field that is the headline and that optimizers raise: "correct" or "em"
    examples: Sequence[QuestionExample]
    config: dict[str, Any]  # dataset, revision or file hash, setting, split, n, ids hash, wiki source, sandbox ...
    # optional: `notices: list[str]`, lines for the user;
    # optional: `score_prediction(example, prediction) -> dict`, scores that need all that the program returned;
    # optional: `refusal: str | None`, one line why no row may run (dataset code without the opt-in): the rows then
    # count as wrong, no program is called and no model is asked

    def score(
        self, example: QuestionExample, final_text: str, answer: str | None, last_tool_result: str
    ) -> dict[str, Any]:
        """Scoring fields of one row (see tasks.md); total: never raises on any model output."""
        ...

    def summarize(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Task-specific means over scored rows, to be merged into summary.json."""
        ...


@dataclass
class Split:
    """Rows of one role in an optimization: `train`, `validation` or `test`."""

    name: str
    examples: list[QuestionExample] = field(default_factory=list)
