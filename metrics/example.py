"""One question of a task: what a program may see, with its gold kept out of sight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy


class QuestionExample(dspy.Example):
    """A `dspy.Example` with inputs `question`, `tools`, `answer_format` and a hidden gold.

    `id` (str or int) and `meta` (type, level, hops ... for reports) are labels. The gold is reachable as
    `example.gold` and `example.answer`, all answers that count as right as `example.accepted` (the gold first), but
    they are no stored fields: `repr`, `items()`, `toDict()`, labelled demos and DSPy's dataset summaries, which all
    read the stored fields, cannot leak them.
    """

    def __init__(self, base: Any = None, *, gold: Any = None, accepted: Sequence[Any] = (), **fields: Any) -> None:
        super().__init__(base, **fields)
        self._gold = gold if gold is not None else getattr(base, "_gold", None)
        self._accepted = tuple(accepted) or getattr(base, "_accepted", ())

    @property
    def gold(self) -> Any:
        return self._gold

    @property
    def answer(self) -> Any:
        return self._gold

    @property
    def accepted(self) -> tuple[Any, ...]:
        return self._accepted or (self._gold,)

    def __repr__(self) -> str:
        return f"QuestionExample(id={self._store.get('id')!r}, question={self._store.get('question')!r})"

    __str__ = __repr__
